"""From a container's spec to its share and the edits that give it: what every door does first."""

from __future__ import annotations

import os

from . import claim, edits, host, request, rootfs
from .errors import VcudaError
from .identity import is_pod, is_sandbox, owner_of
from .ledger import Ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .allocation import Allocation
    from .config import Config
    from .edits import Edits

# <prefix>/lib/vcuda/python/vcuda_oci/grant.py
_LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHIM = _LIBRARY + "/libvcuda.so.1"
HOOK = os.path.dirname(os.path.dirname(_LIBRARY)) + "/bin/vcuda-container-hook"


class Creation:
    """A container that is being created.

    runtime: the command line that asks the low-level runtime for its state, up to the verb.
    claimant: a process that lives until the container exists, or is its first one.
    """

    def __init__(self, container_id: str, bundle: str, runtime: list[str], claimant: int) -> None:
        self.container_id, self.bundle = container_id, bundle
        self.runtime, self.claimant = runtime, claimant


class Grant:
    """A claimed share and what has to change in the container. driver_root: where its nodes are."""

    def __init__(
        self, ledger: Ledger, allocation: Allocation, is_new: bool, edits: Edits, driver_root: str
    ) -> None:
        self.ledger, self.allocation, self.is_new = ledger, allocation, is_new
        self.edits, self.driver_root = edits, driver_root

    def undo(self) -> None:
        """Give back what this very claim took; a container that had it before keeps it."""
        if self.is_new:
            with self.ledger:
                self.ledger.remove(self.allocation.id)


def may_count(asked: request.Asked, annotations: dict[str, str]) -> bool:
    """Whether the request counts under any settings at all.

    Judged before the settings are read: a mistake there must not stop a pod whose image, as many
    do, carries NVIDIA's variable.
    """
    return not (is_sandbox(annotations) or (asked.from_env and is_pod(annotations)))


def grant(spec: Any, asked: request.Asked, settings: Config, creation: Creation) -> Grant | None:
    """Claim what the spec asks for; None: by these settings it does not count.

    Raises VcudaError with nothing claimed.
    """
    annotations = request.annotations_of(spec)
    privileged = request.sees_every_device(spec)
    setting = settings.accept_request_from_env
    if not request.counts(asked, setting, is_pod(annotations), privileged):
        return None
    owner = owner_of(annotations, creation.container_id)
    wanted = request.parse(asked)
    if not os.path.exists(SHIM):
        raise VcudaError("no libvcuda", SHIM, "install vcuda again, whole")
    facts = host.load(settings.driver_root, settings.state_dir + "/host.json")
    ledger = Ledger(settings.state_dir)
    rules = claim.Rules(
        settings.placement,
        settings.memory_overcommit,
        settings.context_memory,
        settings.meter_copies,
    )
    allocation, is_new = claim.claim(
        ledger, facts, owner, wanted, creation.runtime, creation.claimant, rules
    )
    granted = Grant(ledger, allocation, is_new, edits.Edits(), facts.root)
    try:
        paths = edits.Paths(
            SHIM,
            f"{ledger.containers}/{allocation.id}",
            [HOOK, "--config", settings.path, "poststop"],
            settings.extra_mounts,
        )
        folder = rootfs.library_folder(spec, creation.bundle)
        granted.edits = edits.edits_for(allocation, facts, paths, folder)
    except BaseException:
        granted.undo()
        raise
    return granted
