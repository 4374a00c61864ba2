"""One container under its suspend lock: its record and the word in its limits page.

    <state>/containers/<id>/suspend.lock   held (flock) by the program that suspends or resumes the
                                           container, and by its worker

The order of writes, of which any program may be killed between any two:

    suspend: record "suspending", not asked, page, record asked with what the driver found, driver,
             record "suspended"
    resume:  record "waiting" if there is no room, record "resuming", driver, page, no suspension

So a record in a step that no program holds the lock for was interrupted, and says what is to be
done: repairs.repair.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from vcuda_oci.guest import page_file
from vcuda_oci.ledger.ledger import Ledger, unwritable
from vcuda_oci.ledger.resize import TURN_SECONDS
from vcuda_oci.model.allocation import Allocation, moved
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import SUSPENDED, UNTIL_CALL, Suspension
from vcuda_oci.pages import layout, suspended_word
from vcuda_oci.pages.limits_in_place import Turn, rename_gpus
from vcuda_oci.system import own_lock

from ..live import usage

LOCK = "suspend.lock"


class Busy(VcudaError):
    """Another program holds the container's suspend lock."""


class NotIdle(VcudaError):
    """A call of the container may be in the driver."""


class Ended(VcudaError):
    """The container's record has been removed, or is its next instance's."""


class Operation:
    """A context manager that holds the lock. record: the container's, as last read or written.

    nodes_left: as Allocation has it, for the next write of the record; None: as it is.
    """

    record: Allocation
    nodes_left: list[str] | None = None

    def __init__(self, ledger: Ledger, id: str, seconds: float) -> None:
        """seconds: how long to wait for the lock."""
        self.ledger, self.id, self._seconds = ledger, id, seconds
        self.lock = self._page = -1

    def __enter__(self) -> Operation:
        """Raises Busy; Ended: there is no such record; VcudaError: no whole record or page."""
        folder = f"{self.ledger.containers}/{self.id}"
        try:
            self.lock = own_lock.acquire(f"{folder}/{LOCK}", self._seconds)
        except BlockingIOError:
            hint = "wait for it, or see 'vcuda ps'"
            raise Busy("is being suspended or resumed", self.id, hint) from None
        except OSError:
            raise self._ended() from None
        try:
            with self.ledger:
                record = self.ledger.get(self.id)
                if record is None:
                    raise self._ended()
                self._page = page_file.open_page(folder + "/limits", os.O_RDWR)
            self.record = record
        except OSError as error:
            self.__exit__()
            raise unwritable(folder, error) from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self._page, self.lock):
            if fd >= 0:
                os.close(fd)
        self.lock = self._page = -1

    def let_calls_wait(self, by: str) -> None:
        """Have calls of the container wait; where a call ends it, each asks to be resumed."""
        self._write_word(layout.UNTIL_CALL if by in UNTIL_CALL else layout.SUSPENDED)

    def let_calls_go_on(self) -> None:
        self._write_word(layout.AWAKE)

    def refuse_if_busy(self) -> None:
        """Refuse to suspend a container with calls that may be in the driver: those cannot ask to
        be resumed. Calls that begin from now on can. Raises NotIdle.
        """
        page = usage.page_of(self.ledger, self.record)
        if page is None or page.calls_inside:
            what = "is not idle: a call may be in the driver"
            raise NotIdle(what, self.id, "wait until its programs wait for nothing")

    def _write_word(self, state: int) -> None:
        try:
            suspended_word.write(self._page, state)
        except OSError as error:
            raise unwritable(self.ledger.containers, error) from error

    def update(self, suspension: Suspension | None) -> None:
        """Write the step into the record. Raises Ended; VcudaError: cannot be written."""
        with self.ledger:
            self.write(suspension)

    def write(self, suspension: Suspension | None) -> None:
        """As `update`; the caller holds the ledger's lock."""
        self._change(lambda now: now.replaced(suspension=suspension))

    def _change(self, change: Callable[[Allocation], Allocation]) -> None:
        now = self.ledger.get(self.id)
        if now is None or _instance(now) != _instance(self.record):
            raise self._ended()
        changed = change(now)
        if self.nodes_left is not None:
            changed = changed.replaced(nodes_left=self.nodes_left)
        try:
            self.ledger.record(changed)
        except OSError as error:
            raise unwritable(self.ledger.allocations, error) from error
        self.record = changed

    def forget_nodes_left(self) -> None:
        """Write into the record that no nodes are left. Raises Ended; VcudaError."""
        self.nodes_left = []
        with self.ledger:
            self._change(lambda now: now)

    def step(self, step: str, wanted: float = 0) -> Suspension:
        """The record's suspension in another step. Raises Ended: there is none."""
        held = self.record.suspension
        if held is None:
            raise self._ended()
        moves = {} if step == SUSPENDED else held.moves
        return held.replaced(step=step, wanted=wanted, moves=moves)

    def end_move(self) -> None:
        """The container is at work on its new GPUs: the record's shares name them. Raises Ended."""
        held = self.record.suspension
        shares = moved(self.record.shares, held.moves if held else {})
        with self.ledger:
            self._change(lambda now: now.replaced(shares=shares, suspension=None))

    def name_gpus(self, moves: Mapping[str, str]) -> None:
        """Have the container's limits page name the GPUs that take the place of others; {}: its own
        ones. New processes find those. Raises VcudaError.
        """
        path = f"{self.ledger.containers}/{self.id}/limits"
        wanted = [moves.get(share.uuid, share.uuid) for share in self.record.shares]
        try:
            with Turn(self.ledger.state_dir, TURN_SECONDS) as mine:
                if not mine:
                    what = f"another process has held the pages for {TURN_SECONDS:.0f} s"
                    raise VcudaError(what, path, "find it with 'fuser pages.lock'")
                rename_gpus(path, wanted)
        except ValueError as error:
            raise VcudaError(str(error), path, "start the container again") from error
        except OSError as error:
            raise unwritable(path, error) from error

    @property
    def found(self) -> Mapping[str, Sequence[int]]:
        """As Suspension has it."""
        return self.record.suspension.found if self.record.suspension else {}

    def note_found(self, found: Mapping[str, Sequence[int]]) -> None:
        """Write into the record what was found, before the driver changes any process's state."""
        as_read = {pid: list(each) for pid, each in found.items()}
        held = self.step(self.record.suspension.step if self.record.suspension else "")
        self.update(held.replaced(asked=True, found=as_read))

    def begun(self, step: str, by: str, needed: dict[str, int]) -> Suspension:
        """A new suspension, with what the container itself reports that it holds."""
        sample = usage.take_sample(self.ledger, self.record)
        held = {}
        for share, gpu in zip(self.record.shares, sample.gpus if sample else ()):
            held[share.uuid] = min(gpu.held_bytes, share.memory_bytes)
        return Suspension(step, by, time.time(), held, needed=needed, asked=False)

    def went_off(self, needed: Mapping[str, int]) -> Suspension:
        """needed: {} where it is not known better than when it began."""
        off = self.step(SUSPENDED).replaced(since=time.time())
        return off.replaced(needed=dict(needed)) if needed else off

    def _ended(self) -> Ended:
        return Ended("its container has ended", self.id, "see 'vcuda ps'")


def _instance(record: Allocation) -> tuple[str, list[str], list[int]]:
    return record.container_id, record.runtime, record.claimant
