"""Moves of a container to other GPUs: what can be moved, and what a container is given for it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import unhealthy
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import NODE, PLACED, Allocation, GpuShare, moved
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement import eligible, free
from vcuda_oci.placement.eligible import Refused
from vcuda_oci.placement.rules import Rules

from ..live import container_processes, own_program

LEAST_DRIVER = 580
_SECONDS = 30.0


def gpu_of(facts: Host, word: str) -> Gpu:
    """The GPU of this UUID or index, no MIG device. Raises VcudaError: there is none."""
    for gpu in facts.gpus:
        if word in (gpu.uuid, str(gpu.index)) and gpu.mig is None:
            return gpu
    raise VcudaError("is not in this machine", word, "see 'vcuda gpus'")


def closed(ledger: Ledger) -> dict[str, str]:
    """Why GPUs take no container that moves, by UUID."""
    under_mps = free.of_other_kind(ledger.read()[0], under_mps=False)
    return {**under_mps, **unhealthy.reasons(ledger.state_dir)}


def moves_to(
    record: Allocation, facts: Host, word: str, closed: Mapping[str, str] = {}
) -> dict[str, str]:
    """The moves that bring the container to the GPU of this UUID or index; {}: it is there.

    closed: as the function of this name. Raises VcudaError: there is no such GPU, or the container
    cannot be moved to it.
    """
    to = gpu_of(facts, word)
    refused = refusal(record, facts, to)
    if refused:
        raise VcudaError(refused[0], record.id, refused[1])
    (share,) = record.shares
    if share.uuid == to.uuid:
        return {}
    if to.uuid in closed:
        raise VcudaError(eligible.closed(to.uuid, closed[to.uuid]), record.id, "name another GPU")
    return {share.uuid: to.uuid}


def refusal(record: Allocation, facts: Host, to: Gpu) -> tuple[str, str] | None:
    """Why the container cannot be moved to this GPU, even if all of it were free, and a hint; None:
    it can be. Pure.
    """
    if len(record.shares) != 1:
        return "has shares of several GPUs", "move only containers of one GPU"
    if record.is_named_slice:
        return "is a named slice or a claim: its containers name its GPU", "suspend it"
    if record.pod and record.pod.get(PLACED) != NODE:
        # The scheduler counts the pod on the GPU that it chose, and knows reasons against others
        # that this host does not: the pod's neighbours by label, the GPUs that its author named.
        what = "belongs to a pod, which the scheduler has placed on its GPU"
        return what, "delete the pod, and it is scheduled anew; or suspend the container"
    if record.becoming:
        return "its share is being changed", "try again"
    if record.rotates:
        return "rotates on its GPU", "start it again where there is room beside all promises"
    if int(facts.version.partition(".")[0]) < LEAST_DRIVER:
        return f"driver {facts.version} cannot move programs", "install driver 580 or newer"
    now = facts.gpu(record.shares[0].uuid)
    if now is None or now.mig is not None or to.mig is not None or to.divided:
        return "MIG devices cannot be moved, and nothing onto them", "use shares of whole GPUs"
    if now.model != to.model:
        what = f"{to.uuid} is {to.model}, and the container's programs began on {now.model}"
        return what, "choose a GPU of the same model"
    return None


def room(
    record: Allocation,
    others: Sequence[Allocation],
    gpus: Sequence[Gpu],
    moves: Mapping[str, str],
    rules: Rules,
) -> Refused | None:
    """Why there is no room on the new GPUs, each byte counted once; None: there is. Pure."""
    taken = [share for other in others if other.id != record.id for share in other.reserved]
    there = [share for share in moved(record.shares, dict(moves)) if share.uuid in moves.values()]
    return free.beside_mps(there, others) or free.no_room(there, gpus, taken, rules.once())


def pairs(shares: Sequence[GpuShare], moves: Mapping[str, str]) -> list[list[str]]:
    """For the driver: each of the container's GPUs, and the one in its place; []: no moves."""
    return [[each.uuid, moves.get(each.uuid, each.uuid)] for each in shares] if moves else []


def change_nodes(
    record: Allocation, facts: Host, allowed: Sequence[str], denied: Sequence[str]
) -> None:
    """Let the container open the GPUs `allowed`, and deny it those in `denied`; by UUID.

    Files that its processes have open stay open. Raises VcudaError.
    """
    try:
        pid = container_processes.init_of(record.runtime, record.container_id)
    except OSError:
        raise VcudaError("its container has ended", record.id, "see 'vcuda ps'") from None
    order = {
        "pid": pid,
        "container_id": record.container_id,
        "driver_root": facts.root,
        "allowed": _nodes(facts, allowed),
        "denied": _nodes(facts, denied),
    }
    words = own_program.command("hooks.running_nodes", json.dumps(order))
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        what = f"its device nodes cannot be changed: {error}"
        raise VcudaError(what, record.id, "see 'vcuda ps'") from error
    if done.returncode or done.stdout:
        last = (done.stderr.strip() or "no answer").splitlines()[-1]
        answer = [last, record.id, "report it"]
        what, where, hint = json.loads(done.stdout) if done.stdout else answer
        raise VcudaError(what, f"{record.id}: {where}", hint)


def leave_others(record: Allocation, facts: Host) -> None:
    """Let the container open its own GPUs only: a move that was killed may have left another one.

    Raises VcudaError.
    """
    own = [share.uuid for share in record.shares]
    others = [gpu.uuid for gpu in facts.gpus if gpu.uuid not in own and gpu.mig is None]
    change_nodes(record, facts, own, others)


def _nodes(facts: Host, uuids: Sequence[str]) -> list[tuple[str, int, int]]:
    found = []
    for uuid in uuids:
        gpu = facts.gpu(uuid)
        node = facts.nodes.get(f"nvidia{gpu.minor}") if gpu else None
        if node is None:
            raise VcudaError("has no device node", uuid, "run 'nvidia-modprobe -c 0 -u'")
        found.append((node.path, node.major, node.minor))
    return found
