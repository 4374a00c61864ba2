"""Empty a GPU, and keep it empty: what runs there is moved, or else suspended.

The order of writes, of which any program may be killed between any two:

    drain:   the GPU is in drained.json (no new containers), each container's move or suspend, ended
    undrain: the GPU is out of drained.json, each suspended container's resume

Each move and suspend is complete in itself (control.py). A killed drain leaves the GPU closed, and
the containers that it has not reached at work: the next `vcuda drain` continues, `vcuda undrain`
undoes it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import events, unhealthy
from vcuda_oci.ledger.ledger import Ledger, unwritable
from vcuda_oci.ledger.unhealthy import Drain
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import BY_DRAIN, SUSPENDED
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import own_lock

from ..checkpoint import host_room
from ..checkpoint.drive import Progress
from ..suspend import control, elsewhere, relocation, repairs
from ..suspend.places import Done
from . import drain_plan, survey
from .drain_plan import ASLEEP, MOVE, STAY, SUSPEND, Step
from .survey import Why

LOCK = "drain.lock"


class Result(NamedTuple):
    """What became of a step. done: None: it failed, or there was nothing to do. error: "": none."""

    step: Step
    done: Done | None = None
    error: str = ""


# Called before a step is taken; the answer is called with what the driver does.
Begin = Callable[[Step], Progress]


def planned(
    ledger: Ledger,
    facts: Host,
    uuid: str,
    rules: Rules,
    failed: Mapping[tuple[str, str], Why] = {},
) -> list[Step]:
    """The plan as things are now; nothing is changed.

    failed: as drain_plan.plan. Raises VcudaError: a record is broken.
    """
    closed = {**relocation.closed(ledger), uuid: ""}
    seen = survey.survey(ledger, facts, closed)
    host_bytes = host_room.left(ledger.read()[0], rules.host_bytes)
    return drain_plan.plan(facts, uuid, seen, rules, host_bytes, failed)


def drain(
    ledger: Ledger,
    facts: Host,
    uuid: str,
    rules: Rules,
    seconds: float,
    begin: Begin,
) -> list[Result]:
    """Close the GPU to new containers, then move or suspend what runs there, one after the other.

    seconds: for the driver, with each container. Raises VcudaError: another drain is at work, or a
    record is broken.
    """
    results: dict[str, Result] = {}
    failed: dict[tuple[str, str], Why] = {}
    with alone(ledger):
        begun = _close(ledger, uuid)
        repair_all(ledger, facts)
        while True:
            steps = planned(ledger, facts, uuid, rules, failed)
            step = next((one for one in steps if one.action in (MOVE, SUSPEND)), None)
            if step is None:
                break
            results[step.id] = carry_out(ledger, facts, step, rules, seconds, begin(step))
            if results[step.id].error:
                failed[step.id, step.action] = results[step.id].error, ""
        with changing(ledger) as drained:
            # The file may have been removed meanwhile: only undrain opens the GPU.
            drained[uuid] = Drain(drained.get(uuid, begun).since, ended=True)
    for step in steps:
        if step.id not in results or step.action == STAY:
            results[step.id] = results.get(step.id, Result(step))._replace(step=step)
    return list(results.values())


def carry_out(
    ledger: Ledger, facts: Host, step: Step, rules: Rules, seconds: float, progress: Progress
) -> Result:
    """Move or suspend the container as the step says; a failure is in the result. An interrupt
    completes the step first.
    """
    try:
        if step.action == MOVE:
            done = control.move(
                ledger, facts, step.id, step.target, rules, seconds, progress, BY_DRAIN
            )
        else:
            done = control.suspend(ledger, facts, step.id, rules, BY_DRAIN, seconds, progress)
    except VcudaError as error:
        return _failed(step, error)
    except KeyboardInterrupt:
        repairs.repair(ledger, facts, step.id, control.TURN_SECONDS)  # without an agent too
        raise
    return Result(step, done)


def _failed(step: Step, error: VcudaError) -> Result:
    return Result(step, None, f"{error.what}; {error.hint}" if error.hint else error.what)


def undrain(
    ledger: Ledger,
    facts: Host,
    uuid: str,
    rules: Rules,
    seconds: float,
    begin: Begin,
) -> tuple[bool, list[Result]]:
    """Open the GPU to new containers, then bring back what a drain has suspended there.

    seconds: how long to wait for room, for each. Returns whether it was drained. Raises VcudaError:
    another drain is at work.
    """
    results = []
    with alone(ledger):
        with changing(ledger) as drained:
            was = drained.pop(uuid, None)
        if was:
            _record(ledger, events.GPU_UNDRAINED, uuid, "is in use again")
        repair_all(ledger, facts)
        for record in ledger.read()[0]:
            held = record.suspension
            gpus = [facts.gpu(share.uuid) for share in record.shares]
            there = any(gpu and uuid in (gpu.uuid, gpu.parent) for gpu in gpus)
            if not (there and held and held.by == BY_DRAIN and held.step == SUSPENDED):
                continue
            step = Step(record.id, ASLEEP, sum(held.bytes.values()))
            progress = begin(step)
            try:
                done = control.resume(ledger, facts, record.id, rules, seconds, progress)
                results.append(Result(step, done))
            except VcudaError as error:
                results.append(_failed(step, error))
    return was is not None, results


def repair_all(ledger: Ledger, facts: Host) -> None:
    """Complete what killed programs left, of any container."""
    for record in ledger.read()[0]:
        if record.suspension and record.suspension.step != SUSPENDED:
            try:
                repairs.repair(ledger, facts, record.id)
            except VcudaError:
                pass  # the driver allows neither way now; the plan names the container
    elsewhere.settle_nodes(ledger, facts)


@contextmanager
def alone(ledger: Ledger) -> Iterator[None]:
    """Hold the lock of drains and rebalances: one at a time. Raises VcudaError."""
    try:
        ledger.make_folders()
        lock = own_lock.acquire(f"{ledger.state_dir}/{LOCK}", 0)
    except BlockingIOError:
        what = "another drain or rebalance is at work"
        raise VcudaError(what, f"{ledger.state_dir}/{LOCK}", "wait for it") from None
    except OSError as error:
        raise unwritable(ledger.state_dir, error) from error
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def changing(ledger: Ledger) -> Iterator[dict[str, Drain]]:
    """The drained GPUs by UUID, to be changed. Raises VcudaError: they cannot be written."""
    with ledger:
        drained = unhealthy.read_drained(ledger.state_dir)
        yield drained
        try:
            unhealthy.write_drained(ledger.state_dir, drained)
        except OSError as error:
            raise unwritable(ledger.state_dir, error) from error


def _close(ledger: Ledger, uuid: str) -> Drain:
    with changing(ledger) as drained:
        is_new = uuid not in drained
        since = time.time() if is_new else drained[uuid].since
        drained[uuid] = begun = Drain(since, ended=False)
    if is_new:
        _record(ledger, events.GPU_DRAINED, uuid, "gets no new containers")
    return begun


def _record(ledger: Ledger, kind: str, uuid: str, text: str) -> None:
    events.record(ledger.state_dir, ledger.program, kind, "", f"{uuid} {text}", gpu=uuid)
