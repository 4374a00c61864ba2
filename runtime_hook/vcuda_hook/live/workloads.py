"""The workloads that containers belong to: a pod's owner is in the agent's record of the pod."""

from __future__ import annotations

from collections.abc import Sequence

from vcuda_oci.ledger import decision
from vcuda_oci.model import names
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.system import files

from ..advice import workload
from ..advice.workload import Workload
from ..names import container_names
from . import views

_MOST_BYTES = 1 << 20


def of(state_dir: str, allocations: Sequence[Allocation]) -> dict[str, Workload]:
    """By allocation, as the node agent names them."""
    described = container_names.of(allocations)
    found = {}
    for each in allocations:
        owner = (each.pod and owner_of(state_dir, each.pod.get("uid", ""))) or ""
        shown = described[each.id]
        name = shown.name or views.short_id(each.id)
        found[each.id] = workload.of(each.pod or None, owner, name, shown.image)
    return found


def owner_of(state_dir: str, uid: str) -> str | None:
    """The pod's owner as "Kind/name", "" if it has none; None: the agent has no record of it."""
    try:
        path = f"{state_dir}/{names.DECISIONS}/{uid}.json"
        return decision.parse(files.read(path, _MOST_BYTES).decode()).owner
    except (OSError, ValueError):
        return None
