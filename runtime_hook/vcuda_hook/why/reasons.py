"""Why a container waits, was refused or is slow, from what is known of it: pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_oci.ledger import events
from vcuda_oci.model.policies import MPS
from vcuda_oci.model.suspension import (
    BY_DRAIN,
    BY_IDLENESS,
    BY_ORDER,
    BY_ROTATION,
    RESUMING,
    SUSPENDED,
    SUSPENDING,
    WAITING,
    Suspension,
)

from ..live import turn_figures, views
from ..live.status import CLAIMING, GONE, UNKNOWN
from ..text import table
from .pod_scheduling import PodEvent

Entry = Mapping[str, Any]

# Parts of the time, or of the limit, from which on a figure is a reason.
_MUCH_WAIT, _MUCH_LOST, _FULL = 10, 25, 0.95
_NO_LIMIT = "stop it, and create it with another share"
# Only events younger than this explain the present.
RECENT_SECONDS = 3600.0
_STATES = {
    "created": ("it is created and not started", "its engine starts it"),
    "paused": ("it is paused", "its engine resumes it"),
    "stopped": ("it has ended; a pod keeps the share for its next instance", ""),
    CLAIMING: ("it is being created", ""),
    GONE: ("its runtime does not know it any more", "'vcuda release --all-dead' frees its share"),
    UNKNOWN: ("its runtime does not answer", "run 'vcuda doctor'"),
    SUSPENDING: ("it is being suspended", ""),
    RESUMING: ("it is being resumed", ""),
}
_CALL = "its next CUDA call resumes it"
_SUSPENDED = {
    BY_ORDER: (
        "it is suspended by order: its calls wait until it is resumed",
        "'vcuda resume' resumes it",
    ),
    BY_IDLENESS: ("it is suspended, since it was idle", _CALL),
    BY_DRAIN: (
        "it is suspended, since its GPU is drained: its calls wait until it is resumed",
        "'vcuda undrain' resumes it there, 'vcuda resume --gpu' on another GPU",
    ),
    BY_ROTATION: ("it is suspended, for others that rotate", _CALL),
}


class Reason(NamedTuple):
    """kind: a word. what: one sentence. hint: what to do, or ""."""

    kind: str
    what: str
    hint: str = ""


def of_state(
    status: str, held: Suspension | None, becoming: bool, wait: float | None = None
) -> Iterator[Reason]:
    """held: the record's suspension, which a paused container has too. becoming: whether a change
    of its share has begun. wait: the most seconds until a call has it back; None: no bound.
    """
    bound = (
        "as soon as containers that do not rotate leave it the room"
        if wait is None
        else f"within {math.ceil(wait)} s at copies of 2 GiB/s"
    )
    if status == WAITING:
        yield Reason("state", "it waits for room to be resumed", f"it gets it {bound}")
    elif status in _STATES and status != SUSPENDED:
        yield Reason("state", *_STATES[status])
    if held and held.step == SUSPENDED:
        what, hint = _SUSPENDED[held.by]
        yield Reason("state", what, f"{hint}, {bound}" if hint == _CALL else hint)
    if becoming:
        yield Reason("state", "a change of its share was interrupted", "the agent completes it")


def of_share(name: str, entry: Entry, before: Entry | None, gpu: Entry | None) -> Iterator[Reason]:
    """Reasons on one GPU, from a sample and the one before; of tenants and GPUs of LiveView."""
    where = f"GPU {entry['gpu_name'] or entry['gpu_uuid']}"
    if gpu is None:
        yield Reason("gpu", f"{entry['gpu_uuid']} is not seen on this host", "see 'vcuda gpus'")
    elif condition := views.condition(gpu):
        yield Reason("gpu", f"{where} is {condition}", "see 'vcuda gpus'")
    if entry["usage"] == views.IMPOSSIBLE:
        yield Reason("figures", "its usage page has figures that cannot be true")
    elif entry["usage"] == views.UNREADABLE:
        yield Reason("figures", "its usage page cannot be read", "run it as root")
    yield from _of_time(name, where, entry, before)
    yield from _of_memory(name, where, entry)


def _of_time(name: str, where: str, entry: Entry, before: Entry | None) -> Iterator[Reason]:
    held, waits, core = entry["held_percent"], entry["waits_for"], entry["core_percent"]
    more = _NO_LIMIT
    if not _is_fixed(entry):
        more = f"'vcuda limit {name} --core N', or a policy that uses what others leave"
    if waits == turn_figures.TURN:
        holders = ", ".join(entry["held_by"] or ()) or "another container"
        yield Reason(
            "turns",
            f"it waits for its turns: {where} is held by {holders}; it has {held:.0f} % of the "
            f"time, its share is {core} %",
            f"{more}; for short requests --latency low",
        )
    elif waits == turn_figures.SHARE:
        what = f"its share of {core} % of {where} is used up, and no other container has the GPU"
        yield Reason("share", what, more)
    elif (entry["waited_percent"] or 0) >= _MUCH_WAIT:
        width = (entry["mps"] or {}).get("multiprocessors")
        share = f"{width} multiprocessors" if width else f"share of {core} %"
        what = (
            f"its launches wait for its {share} of {where} for "
            f"{entry['waited_percent']:.0f} % of the time, as it says itself"
        )
        yield Reason("share", what, more)
    lost = _difference("lost_seconds", entry, before)
    took = _difference("held_seconds", entry, before)
    if took > 0 and 100 * lost >= _MUCH_LOST * took:
        what = f"{where} is idle for {100 * lost / took:.0f} % of its turns: launches have gaps"
        yield Reason("gaps", what, "launch more at a time, by streams or graphs")


def _of_memory(name: str, where: str, entry: Entry) -> Iterator[Reason]:
    used, limit = entry["memory_used_bytes"], entry["memory_bytes"]
    hint = _NO_LIMIT if _is_fixed(entry) else f"'vcuda limit {name} --memory SIZE'"
    if entry["refusals"]:
        times = entry["refusals"]
        what = (
            f"{times} allocation{' was' if times == 1 else 's were'} refused at its limit of "
            f"{table.size(limit)} on {where}; it has {table.size(used or 0)}"
        )
        yield Reason("memory", what, hint)
    elif used is not None and used >= _FULL * limit:
        what = f"its memory on {where} is nearly full: {table.size(used)} of {table.size(limit)}"
        yield Reason("memory", what, hint)
    if entry["memory_managed"]:
        what = f"its memory on {where} is managed: the driver may move it to the slow host"
        yield Reason("memory", what, "see memory-overcommit")


def _is_fixed(entry: Entry) -> bool:
    """Whether `vcuda limit` refuses to change its share."""
    return entry["isolation"] == MPS or bool(entry["instance_of"])


def _difference(key: str, entry: Entry, before: Entry | None) -> float:
    now, then = entry[key], before[key] if before else None
    return 0.0 if now is None or then is None else max(0.0, float(now - then))


_RECENT = (events.THROTTLED, events.OUT_OF_MEMORY, events.BYPASS_FOUND, events.TURN_OVERRUN)


def of_events(found: Sequence[Entry], now: float) -> Iterator[Reason]:
    """The newest event of each kind that explains a running container."""
    newest = {event["kind"]: event for event in found if now - event["time"] <= RECENT_SECONDS}
    if found and found[-1]["kind"] == events.REFUSED:
        yield Reason(events.REFUSED, f"it was refused {_ago(found[-1], now)}: {found[-1]['text']}")
    for kind in _RECENT:
        if kind in newest:
            yield Reason(kind, f"{_ago(newest[kind], now)}: {newest[kind]['text']}")


def of_absence(found: Sequence[Entry], now: float) -> Iterator[Reason]:
    """Why a container without a share has none: its last event says so. found: the oldest first."""
    decisive = [event for event in found if event["kind"] in _ABSENT]
    if decisive:
        last = decisive[-1]
        what, hint = _ABSENT[last["kind"]]
        yield Reason(last["kind"], f"{what} {_ago(last, now)}: {last['text']}", hint)


def of_no_node(last: PodEvent) -> Iterator[Reason]:
    """Why kube-scheduler has bound a pod to no node. last: the newest event of the pod."""
    if last.reason == _NO_NODE:
        why, cut, _ = last.message.partition(" preemption:")
        if cut:  # a last clause on preemption begins with the sentence before this word
            why = why.removesuffix(".") if why.endswith(".") else why.rpartition(". ")[0]
        hint = "'vcuda gpus' on a GPU node shows what is free there" if _TOO_LITTLE in why else ""
        yield Reason("pending", f"{last.source} finds no node for it: {why}", hint)


def waits_for_claims(found: Sequence[PodEvent]) -> bool:
    """Whether kube-scheduler finds no node for the pod's claims. found: the newest event last."""
    return bool(found) and found[-1].reason == _NO_NODE and _NO_DEVICE in found[-1].message


def of_warning(last: PodEvent) -> Iterator[Reason]:
    """last: the newest event of the pod."""
    if last.type == "Warning":
        yield Reason("cluster", f"{last.source}: {last.reason}: {last.message}")


def of_silence(unknown: str) -> Reason:
    """Nothing on this host says why, and the cluster was not asked. unknown: why not."""
    what = f"nothing on this host says why, and the cluster's events are unknown: {unknown}"
    return Reason("unknown", what, "see 'kubectl describe pod'")


_NO_NODE = "FailedScheduling"
# kube-scheduler's own words, which say no amounts: for resources, and for claims.
_TOO_LITTLE, _NO_DEVICE = "Insufficient ", "cannot allocate all claims"
_ABSENT = {
    events.REFUSED: ("it was refused", "'vcuda ps' shows what holds the GPUs"),
    events.RELEASED: ("its share was released", ""),
    events.STOPPED: ("its container ended", ""),
    events.DECIDED: (
        "this node's GPUs were decided for it, and its container is not created yet:",
        "see the pod's events",
    ),
    events.UNCLAIMED: ("it runs without the share that it asks for,", ""),
}


def _ago(event: Entry, now: float) -> str:
    return f"{table.age(now - event['time'])} ago"
