"""Find the placement decision for a pod's container before it is created.

The agent keeps one record per pod of this node. A scheduler writes its decision together with the
binding, so a record without a decision means that no scheduler decided, and the node places the
container. A missing record means nothing: the agent may be late, or the API unavailable. Such a
container waits, because the node might place it on another GPU than the decided one. A worker of
the claim socket waits a second and then has the caller start Python, and that process continues to
wait. After that the container is refused: the kubelet tries again, but fails a pod with
restartPolicy Never.
"""

from __future__ import annotations

import os
import time

from ..container import request as container_request
from ..container.identity import Owner
from ..container.request import RawRequest
from ..model import names, policies
from ..model.errors import NotKnownYetError, VcudaError
from ..model.request import Request
from ..system import files
from ..system.settings_file import OFF, REQUIRED, Config
from . import decision
from .claim import Claim
from .decision import Decision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# How long the agent may take to look the pod up, and how long a container is held: less than the
# two minutes that a kubelet gives the engine, more than an agent needs after an API outage.
WAIT_SECONDS = 1.0
HOLD_SECONDS = 20.0
# Whether this process has nothing else to do than to wait.
may_hold = True
_STATIC_UID_LENGTH = 32  # an MD5 in hex; the API's UIDs are longer


def as_decided(wanted: Claim, raw: RawRequest, settings: Config) -> Claim:
    """`wanted` with the GPUs and the policy that were decided for its container; with the amounts
    from the pod's object where the kubelet only counts GPUs.

    Waits and raises as `decision_for`. Raises VcudaError: the amounts are unknown or invalid.
    """
    owner = wanted.owner
    found = decision_for(owner, settings)
    more = with_words(raw, found.words)
    request = container_request.parse(more)
    if request.counted:
        request = _with_amounts(request, more, found, owner)
    decided = found.containers.get(owner.container_name, [])
    return wanted.replaced(request=request, decided=decided, ended=found.init)


def decision_for(owner: Owner, settings: Config) -> Decision:
    """The record of the owner's pod; an empty one for a static pod that the agent does not know.

    Sleeps up to HOLD_SECONDS, so never under the ledger's lock. Raises VcudaError: the agent does
    not know the pod, a decision for this container is required and missing, or the record is bad.
    """
    folder = f"{settings.state_dir}/{names.DECISIONS}"
    path = f"{folder}/{owner.pod_uid}.json"
    # The mirror of a static pod may come late, and no scheduler decides for it.
    is_static = len(owner.pod_uid) == _STATIC_UID_LENGTH
    is_held = settings.decisions != OFF and not is_static and os.path.isdir(folder)
    deadline = time.monotonic() + (HOLD_SECONDS if is_held and may_hold else WAIT_SECONDS)
    found = _read(path)
    while found is None and time.monotonic() < deadline:
        _ask_agent(owner, settings.state_dir)
        found = _wait_for(path)
    if found is None and is_held:
        kind = VcudaError if may_hold else NotKnownYetError
        raise kind(
            "the node agent does not know this pod yet, so its placement decision is unknown",
            _where(owner),
            "the kubelet tries again; see in vcuda-node-agent's log whether it reaches the API",
        )
    found = found or decision.Decision()
    if settings.decisions == OFF:
        return decision.Decision(amounts=found.amounts)
    if settings.decisions == REQUIRED and owner.container_name not in found.containers:
        raise VcudaError(
            f"no scheduler has decided for its container {owner.container_name}",
            _where(owner),
            'have vcuda-scheduler-extender schedule it, or set decisions = "preferred"',
        )
    return found


def _wait_for(path: str) -> Decision | None:
    deadline, pause = time.monotonic() + WAIT_SECONDS, 0.002
    while (found := _read(path)) is None and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return found


def _ask_agent(owner: Owner, state_dir: str) -> None:
    """Have the agent look this pod up in the API; without an agent nothing happens."""
    import socket  # only where the record is missing

    request = "\0".join((owner.namespace, owner.pod_name)).encode(errors="replace")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            asking.settimeout(0)
            asking.sendto(request, f"{state_dir}/{names.POD_LOOKUP}")
    except OSError:
        pass


def _with_amounts(request: Request, raw: RawRequest, found: Decision, owner: Owner) -> Request:
    """`request` with the parts from the pod's object. Raises VcudaError: they are unknown, or the
    policy is invalid for them. Unknown amounts never become whole GPUs."""
    name = owner.container_name
    amounts = found.amounts.get(name)
    if amounts is None:
        raise VcudaError(
            f"GPU amount of container {name} is unknown: the agent is not watching this pod",
            _where(owner),
            "have vcuda-node-agent follow the pods: --kubeconfig, or in a pod of its own",
        )
    if amounts.gpus != request.counted:
        raise VcudaError(
            f"its container {name} asks for {amounts.gpus} GPUs, and the kubelet "
            f"gave {request.counted}",
            _where(owner),
            "delete the pod",
        )
    words = dict(raw.words)
    if amounts.any_core:
        words.setdefault("policy", policies.ELASTIC)
    terms = policies.parse(words, amounts.parts[0].core, raw.where)
    return request.replaced(parts=amounts.parts, terms=terms)


def with_words(raw: RawRequest, words: Mapping[str, str]) -> RawRequest:
    """`raw` with the settings from its pod's annotations; the container's own come first."""
    if not words:
        return raw
    where = f"{raw.where} of the container, annotations of its pod"
    return RawRequest({**words, **raw.words}, where, raw.from_env, raw.sources)


def _read(path: str) -> Decision | None:
    try:
        return decision.parse(files.read_ours(path, 1 << 20))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise VcudaError(
            f"is not a decision ({error})", path, "remove it and restart vcuda-node-agent"
        ) from error


def _where(owner: Owner) -> str:
    return f"pod {owner.namespace}/{owner.pod_name}"
