"""``vcuda why NAME``: one screen that says why a container waits, was refused or is slow."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any

from vcuda_oci.ledger import events
from vcuda_oci.ledger.event_reader import Reader
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import BY_IDLENESS, BY_ROTATION
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.start.apply_share import host_of
from vcuda_oci.system.settings_file import Config

from ..checkpoint.targets import refuse_unfit
from ..live import views
from ..live.status import statuses
from ..names import container_names
from ..show.live_view import LiveView, gpus_by_uuid
from ..show.show_events import Concerned
from ..suspend.wait_bound import longest_wait
from ..text import table
from . import pod_claims, pod_scheduling, reasons
from .pod_scheduling import Scheduling
from .reasons import Reason

# Turns are counted over this time.
SECONDS = 1.0
_MOST_EVENTS = 6
_NOTHING = Reason("none", "nothing that vcuda knows of holds it up")
_CLOSED = Reason(
    "unknown", "this host's shares and events are closed to this user", "run it as root"
)


def why(arguments: argparse.Namespace, settings: Config) -> int:
    """Returns 1 if the container's state or use is unknown. A user without root gets the cluster's
    reasons of a pod. Raises VcudaError: nothing of that name is known, or several containers are.
    """
    word = arguments.id
    allocations, closed = _records(settings)
    found = container_names.all_of(word, allocations)
    allocation = container_names.find(word, allocations) if found else None
    recorded = _events_of(settings, word, allocation)
    namespace, pod = _pod_of(word, allocation, recorded)
    scheduling = pod_scheduling.ask(namespace, pod) if pod else Scheduling()
    waiting = None
    is_unseen = not (allocation or recorded or scheduling.events)
    if is_unseen and namespace and pod and not scheduling.unknown:
        waiting = pod_claims.unseen(namespace, pod)
    if is_unseen and waiting is None:
        if closed:
            closed.hint += ", or as a user of kubectl name a pod that waits, NAMESPACE/POD"
            raise closed
        hint = f"{container_names.hint_of(word, allocations)} and 'vcuda events'"
        if scheduling.unknown:
            hint += f"; the cluster's events are unknown: {scheduling.unknown}"
        raise VcudaError("no container, event or pod of this name", word, hint)
    answer = _of_share(settings, allocation) if allocation else {"id": None, "name": word}
    its = answer.pop("reasons", [])
    now = time.time()
    its += (
        reasons.of_events(recorded, now) if allocation else _of_absence(scheduling, recorded, now)
    )
    if not allocation and reasons.waits_for_claims(scheduling.events):
        its += pod_claims.ask(scheduling.namespace, pod)
    its += [waiting] if waiting else []
    if closed:
        its.append(_CLOSED)
    answer["reasons"] = [each._asdict() for each in its or [_NOTHING]]
    answer["events"] = recorded[-_MOST_EVENTS:]
    answer["scheduling"] = scheduling.as_json() if pod else None
    if arguments.json:
        table.print_json(answer)
    else:
        for line in _lines(answer):
            print(table.printable(line))
    return 1 if answer.get("status") == "unknown" else 0


def _records(settings: Config) -> tuple[list[Allocation], VcudaError | None]:
    """The records, and None; for another user than root none, and why. Raises VcudaError."""
    try:
        return Ledger(settings.state_dir).read()[0], None
    except VcudaError as error:
        if os.geteuid() == 0:
            raise
        return [], error


def _of_share(settings: Config, allocation: Allocation) -> dict[str, Any]:
    live = LiveView(settings)
    before = _mine(live.sample(), allocation)
    time.sleep(SECONDS)
    view = live.sample()
    entries, gpus = _mine(view, allocation), {gpu["uuid"]: gpu for gpu in view["gpus"]}
    (status,) = statuses([allocation])
    # A name that another container has too would send the hints to that one.
    allocations, _ = Ledger(settings.state_dir).read()
    all_of = {each.id: each for each in (*allocations, allocation)}
    described = container_names.of(list(all_of.values()))[allocation.id]
    name = described.name or views.short_id(allocation.id)
    here = list(gpus_by_uuid(settings).values())
    stays = _of_room(settings, allocation, list(all_of.values())) if allocation.suspension else []
    rules, quantum = rules_of(settings), settings.rotation_quantum
    wait = longest_wait(allocation, all_of.values(), here, rules, quantum)
    state = status.word, allocation.suspension, bool(allocation.becoming)
    found = [*reasons.of_state(*state, None if stays else wait), *stays]
    if not allocation.suspension and (allocation.idle_suspend or allocation.rotates):
        found += _of_stay(settings, allocation)
    for uuid, entry in entries.items():
        found += reasons.of_share(name, entry, before.get(uuid), gpus.get(uuid))
    return {
        "id": allocation.id,
        "name": name,
        "image": described.image or None,
        "status": status.word,
        "shares": list(entries.values()),
        "reasons": found,
    }


def _of_stay(settings: Config, allocation: Allocation, of: str = "it") -> list[Reason]:
    """Why a container that may be suspended, when idle or for others, cannot be. of: how the reason
    names it.
    """
    by = BY_ROTATION if allocation.rotates else BY_IDLENESS
    try:
        refuse_unfit(allocation, host_of(settings), by, Ledger(settings.state_dir))
    except VcudaError as error:
        return [Reason("suspend", f"{of} cannot be suspended: {error.what}", error.hint)]
    return []


def _of_room(
    settings: Config, allocation: Allocation, all_of: Sequence[Allocation]
) -> list[Reason]:
    """Which containers cannot leave a suspended one its room, and why."""
    uuids = {share.uuid for share in allocation.shares}
    names = container_names.of(all_of)
    found = []
    for one in all_of:
        if one.rotates and one.resident and uuids & {share.uuid for share in one.shares}:
            name = names[one.id].name or views.short_id(one.id)
            found += _of_stay(settings, one, f"{name} has its room and")
    return found


def _of_absence(
    scheduling: Scheduling, recorded: Sequence[dict[str, Any]], now: float
) -> list[Reason]:
    """Reasons of a container or pod without a share here. What the cluster says of a waiting pod
    comes first: this host's events may be of an earlier pod of that name.
    """
    last = scheduling.events[-1] if scheduling.events else None
    its = list(reasons.of_no_node(last)) if last else []
    its = its or list(reasons.of_absence(recorded, now))
    if not its and last:
        its = list(reasons.of_warning(last))
    if not its and scheduling.unknown:
        its = [reasons.of_silence(scheduling.unknown)]
    return its


def _mine(view: dict[str, Any], allocation: Allocation) -> dict[str, dict[str, Any]]:
    """The entries of the allocation, by GPU."""
    return {e["gpu_uuid"]: e for e in view["tenants"] if e["id"] == allocation.id}


def _events_of(settings: Config, word: str, allocation: Allocation | None) -> list[dict[str, Any]]:
    """The events of the allocation, or of what `word` names, oldest first; none if this user may
    not read them.
    """
    reader = Reader(f"{settings.state_dir}/{events.NAME}")
    try:
        found = Concerned(allocation.id if allocation else word).among(list(reader.new()))
        its = [each for each in found if not allocation or each["allocation"] == allocation.id]
        return sorted(its, key=lambda event: event["time"])
    except OSError:
        return []
    finally:
        reader.close()


def _pod_of(
    word: str, allocation: Allocation | None, recorded: Sequence[dict[str, Any]]
) -> tuple[str, str]:
    """Namespace, "" if unknown, and name of the pod; "": not a pod's container.

    Raises VcudaError: the events are of several pods.
    """
    if allocation:
        return allocation.pod.get("namespace", ""), allocation.pod.get("name", "")
    pods = {"/".join(str(each["pod"]).split("/")[:2]) for each in recorded if each.get("pod")}
    if len(pods) > 1:
        listed = ", ".join(sorted(pods)[:_MOST_EVENTS])
        raise VcudaError(f"may be {listed}", word, "write the namespace too")
    parts = (pods.pop() if pods else word).split("/")
    if len(parts) > 1:
        return parts[0], parts[1]
    return "", "" if recorded else word


def _lines(answer: dict[str, Any]) -> list[str]:
    lines = [_head(answer), ""]
    for reason in answer["reasons"]:
        hint = f"; {reason['hint']}" if reason["hint"] else ""
        lines.append(f"{reason['kind'].ljust(14)}{reason['what']}{hint}")
    if answer["events"]:
        lines += ["", "last events"]
        for event in answer["events"]:
            when = time.strftime("%m-%d %H:%M:%S", time.localtime(event["time"]))
            lines.append(f"  {when}  {event['kind'].ljust(13)}  {event['text']}")
    scheduling = answer["scheduling"]
    if scheduling and scheduling["unknown"]:
        lines += ["", f"the cluster's events are unknown: {scheduling['unknown']}"]
    elif scheduling:
        its = scheduling["events"]
        lines += ["", "the cluster's events of the pod" + ("" if its else ": none")]
        lines += ["  {time}  {source}  {reason}: {message}".format(**one) for one in its]
    return lines


def _head(answer: dict[str, Any]) -> str:
    if answer["id"] is None:
        return f"{answer['name']}: holds no share on this host"
    shares = [
        f"{e['core_percent']} % and {table.size(e['memory_bytes'])} of GPU {e['gpu_name'] or '?'}, "
        f"{views.policy(e)}, uses {_used(e)}"
        for e in answer["shares"]
    ]
    image = f" ({answer['image']})" if answer["image"] else ""
    return f"{answer['name']}{image}: {answer['status']}; {'; '.join(shares)}"


def _used(entry: dict[str, Any]) -> str:
    core, memory = entry["core_used_percent"], entry["memory_used_bytes"]
    if core is None or memory is None:
        return "unknown"
    return f"{core:.0f} % and {table.size(memory)}"
