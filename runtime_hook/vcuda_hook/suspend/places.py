"""The ends of each suspend and resume: all processes at work, or all off the GPUs."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from vcuda_oci.guest import page_file
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import events, liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.sizes import gib
from vcuda_oci.pages import limits_in_place
from vcuda_oci.placement.rules import Rules

from ..checkpoint import drive, host_room, steps
from ..checkpoint.drive import Outcome, Progress
from ..checkpoint.targets import Targets, Unreachable
from ..checkpoint.worker import Worker
from .operation import Operation

# How long the driver may take to go back after a failure, or to complete a resume.
BACK_SECONDS = 600.0


class Done(NamedTuple):
    """bytes: what the container holds, by GPU. lost: pids of processes that the driver gave up.
    seconds: for which its calls waited beside the wait for room. changed: False: it was so already.
    locking: as Outcome has it, of these seconds.
    """

    bytes: dict[str, int]
    lost: tuple[int, ...] = ()
    seconds: float = 0.0
    changed: bool = True
    locking: float = 0.0


def quiet(call: str, left: int) -> None:
    """No progress."""


def refuse_without_host_room(
    mine: Operation, targets: Targets, worker: Worker, rules: Rules
) -> dict[str, int]:
    """What the container's processes hold, by UUID in bytes; {}: NVML does not answer.

    Each one's memory is copied into its own, so each cgroup needs room for its own processes.
    Raises VcudaError: the host's memory has no room for what they hold.
    """
    limits: list[host_room.Limit] = []
    held: dict[str, int] = {}
    for cgroups, pids in targets.by_cgroups():
        here = drive.held_now(pids, worker)
        limits += host_room.limits_of(cgroups, sum(here.values()))
        held.update({uuid: held.get(uuid, 0) + size for uuid, size in here.items()})
    kept = host_room.kept_by(mine.ledger.read()[0], mine.id)
    together = host_room.together(limits)
    refused = host_room.refusal(sum(held.values()), together, kept, rules.host_bytes)
    if refused:
        raise VcudaError(refused[0], mine.id, refused[1])
    return held


def library_of(facts: Host) -> str:
    return f"{facts.folder}/libcuda.so.{facts.version}"


def bring_back(mine: Operation, worker: Worker, progress: Progress) -> tuple[str | None, Outcome]:
    """Bring the processes back to work, or else off the GPUs.

    Returns the place, and how the way to work went; None: the driver allows neither. Until the
    driver is asked to change anything all are where they were. Raises Unreachable then.
    """
    held = mine.record.suspension
    if held and not held.asked:
        return steps.ON, Outcome()
    first = None
    for place in (steps.ON, steps.OFF):
        try:
            worker.start()
            targets = targets_of(mine)
            if targets is None:
                return place, Outcome()  # nothing is left to bring anywhere
            outcome = bring(mine, place, targets, worker, progress, held.needed if held else {})
        except VcudaError as error:
            if first is None and isinstance(error, Unreachable):
                raise
            outcome = Outcome(error.what, error.hint)
        first = first or outcome
        if not outcome.reason:
            return place, first._replace(lost=tuple({*first.lost, *outcome.lost}))
    return None, first or Outcome()


def bring(
    mine: Operation,
    place: str,
    targets: Targets,
    worker: Worker,
    progress: Progress,
    needed: Mapping[str, int],
    pairs: Sequence[Sequence[str]] = (),
) -> Outcome:
    """Bring the processes to this place. needed, pairs: as drive.bring has them."""
    trim = functools.partial(_ask_to_trim, mine.ledger, mine.id)
    return drive.bring(
        place, targets, worker, BACK_SECONDS, progress, needed, pairs, mine.found, trim=trim
    )


def _ask_to_trim(ledger: Ledger, id: str, uuids: Collection[str]) -> None:
    """Make room on these GPUs: ask all containers but `id` to give back what their pools keep.

    Each answers after its next call that waits for the GPU, so what it keeps may be there for some
    time, or for ever.
    """
    for record in ledger.read()[0]:
        if record.id == id or record.suspension:
            continue
        asked = [at for at, share in enumerate(record.shares) if share.uuid in uuids]
        if not asked:
            continue
        try:
            page = page_file.open_page(f"{ledger.containers}/{record.id}/limits", os.O_RDWR)
        except OSError:
            continue  # it is being removed
        try:
            for gpu in asked:
                limits_in_place.ask_to_trim(page, gpu)
        except OSError:
            pass  # without the room that it keeps the restore is refused, as before
        finally:
            os.close(page)


def targets_of(mine: Operation) -> Targets | None:
    """The container's processes; None: it has ended. Raises VcudaError as Targets does."""
    try:
        return Targets(mine.record, mine.ledger.containers)
    except VcudaError:
        if liveness.container_lives(mine.record):
            raise
        return None


def put_off(mine: Operation, begun: float, needed: Mapping[str, int]) -> Done:
    """begun: monotonic. needed: as Suspension has it."""
    held = mine.went_off(needed)
    mine.update(held)
    took = time.monotonic() - begun
    text = f"{gib(sum(held.bytes.values()))} in host memory, by {held.by}"
    mine.ledger.record_event(events.SUSPENDED, mine.record, text, took)
    return Done(held.bytes, (), took)


def put_on(mine: Operation) -> None:
    mine.let_calls_go_on()
    mine.update(None)


def report_lost(mine: Operation, outcome: Outcome) -> None:
    for pid in outcome.lost:
        text = f"the driver has given up process {pid}; end it"
        mine.ledger.record_event(events.LOST, mine.record, text)


def failed(mine: Operation, outcome: Outcome, verb: str, place: str | None) -> VcudaError:
    """Bring record and page to `place`; the error with the reason of the failure."""
    if place == steps.ON:
        put_on(mine)
        report_lost(mine, outcome)
    now = {steps.ON: "it works on", steps.OFF: "it stays suspended"}.get(
        place or "", "some of its processes stay locked; the next repair tries again"
    )
    text = f"cannot {verb}: {outcome.reason}; {now}"
    mine.ledger.record_event(events.SUSPEND_FAILED, mine.record, text)
    return VcudaError(f"{outcome.reason}; {now}", mine.id, outcome.hint)
