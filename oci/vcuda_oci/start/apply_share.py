"""From a container's spec to its share and the edits that give it: what every door does first."""

from __future__ import annotations

import os
import time

from ..container import engine_name, image_libraries, request, rootfs
from ..container.identity import Owner, is_pod, is_sandbox, owner_of
from ..edits import edits
from ..guest import mount_points
from ..host import device_nodes, host, requirements
from ..ledger import claim, events
from ..ledger.ledger import Ledger
from ..model import capabilities, names
from ..model.errors import NotKnownYetError, VcudaError
from ..system.settings_file import OFF, REQUIRED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..container.identity import Owner
    from ..edits.edits import Edits
    from ..host.host import Host
    from ..model.allocation import Allocation
    from ..model.gpu import Gpu
    from ..system.settings_file import Config

# <prefix>/lib/vcuda/python/vcuda_oci/start/apply_share.py
_LIBRARY = os.path.abspath(__file__).rsplit("/", 4)[0]
SHIM = _LIBRARY + "/libvcuda.so.1"
PROCFS_HOOK = _LIBRARY + "/vcuda-procfs-hook"
HOOK = os.path.dirname(os.path.dirname(_LIBRARY)) + "/bin/vcuda-container-hook"


class Creation:
    """A container that is being created.

    runtime: the command line that asks the low-level runtime for its state, up to the verb.
    claimant: a process that lives until the container exists, or is its first one.
    program: who creates it, as events tell. is_deleted_here: by the front door, which gives back
    what it held. has_left: whether who asked for this no longer waits, and may have claimed it by
    himself since.
    """

    def __init__(
        self,
        container_id: str,
        bundle: str,
        runtime: list[str],
        claimant: int,
        program: str,
        is_deleted_here: bool = False,
        has_left: Callable[[], bool] = bool,
    ) -> None:
        self.container_id, self.bundle = container_id, bundle
        self.runtime, self.claimant, self.program = runtime, claimant, program
        self.is_deleted_here, self.has_left = is_deleted_here, has_left


class Grant:
    """A claimed share and what has to change in the container. driver_root: where its nodes are."""

    def __init__(
        self, ledger: Ledger, allocation: Allocation, is_new: bool, edits: Edits, driver_root: str
    ) -> None:
        self.ledger, self.allocation, self.is_new = ledger, allocation, is_new
        self.edits, self.driver_root = edits, driver_root

    def undo(self, creation: Creation) -> None:
        """Give back what this very claim took; a container that had it before keeps it, and so does
        one that went on without this claim's answer: if it did not, a sweep finds it dead."""
        if self.is_new:
            with self.ledger:  # nobody claims meanwhile
                if not creation.has_left():
                    self.ledger.remove(self.allocation.id)


def may_count(asked: request.Asked, annotations: dict[str, str]) -> bool:
    """Whether the request counts under any settings at all.

    Judged before the settings are read: a mistake there must not stop a pod whose image, as many
    do, carries NVIDIA's variable.
    """
    return not (is_sandbox(annotations) or (asked.from_env and is_pod(annotations)))


def give(
    spec: Any,
    asked: request.Asked,
    settings: Config,
    creation: Creation,
    apply: Callable[[Grant], None],
) -> str:
    """Claim what the spec asks for and have `apply` give it to the container; tell what came of it.

    The allocation's id; "", with nothing done, where by these settings it does not count. Raises
    VcudaError with nothing claimed.
    """
    began = time.monotonic()
    try:
        granted = grant(spec, asked, settings, creation)
        if granted is None:
            return ""
        _note_mount_points(granted, creation, rootfs.path_of(spec, creation.bundle))
        try:
            apply(granted)
        except BaseException:
            granted.undo(creation)
            raise
    except NotKnownYetError:
        raise
    except VcudaError as error:
        tell_refused(spec, settings, creation.container_id, creation.program, error)
        raise
    allocation, seconds = granted.allocation, time.monotonic() - began
    if granted.is_new:
        granted.ledger.tell(events.CLAIMED, allocation, events.of(allocation), seconds)
    elif allocation.claimant[0] == creation.claimant:
        granted.ledger.tell(events.TAKEN_OVER, allocation, events.of(allocation), seconds)
    return allocation.id


def _note_mount_points(granted: Grant, creation: Creation, root: str) -> None:
    # The low-level runtime refuses a second creation: the note is of the first one.
    is_of_another = granted.allocation.claimant[0] != creation.claimant
    if root and not is_of_another:
        folder = f"{granted.ledger.containers}/{granted.allocation.id}"
        mount_points.note(folder, root, [place for _, place, _ in granted.edits.mounts])


def tell_refused(
    spec: Any, settings: Config, container_id: str, program: str, error: VcudaError
) -> None:
    """Under the id that it would have had."""
    owner = _owner(spec, container_id)
    error.allocation = owner.key
    more = events.about(container_id, claim.pod_of(owner))
    events.record(settings.state_dir, program, events.REFUSED, owner.key, str(error), **more)


def id_of(spec: Any, container_id: str) -> str:
    """Of the allocation that the container has, or would have."""
    return _owner(spec, container_id).key


def _owner(spec: Any, container_id: str) -> Owner:
    """By the container's id where its identity is what is wrong."""
    try:
        return owner_of(request.annotations_of(spec), container_id)
    except VcudaError:
        return Owner(container_id, container_id)


def grant(spec: Any, asked: request.Asked, settings: Config, creation: Creation) -> Grant | None:
    """Claim what the spec asks for; None: by these settings it does not count.

    Raises VcudaError with nothing claimed.
    """
    annotations = request.annotations_of(spec)
    privileged = request.sees_every_device(spec)
    setting = settings.accept_request_from_env
    if not request.counts(asked, setting, is_pod(annotations), privileged):
        return None
    if asked.sources:
        place = settings.state_dir
        if not request.is_the_agents(asked, (os.path.normpath(place), os.path.realpath(place))):
            return None
    _refuse_beside_a_slice(spec, asked)
    owner = owner_of(annotations, creation.container_id)
    if not owner.is_pod:
        owner.engine = engine_name.noted(spec, annotations, creation.bundle, owner.container_id)
    wanted = claim.Claim(owner, request.parse(asked), creation.runtime, creation.claimant)
    env = request.environment_of(spec)
    parts = capabilities.asked(
        env.get(names.NVIDIA_DRIVER_CAPABILITIES, ""), settings.driver_capabilities
    )
    check_shim()
    facts = host_of(settings)
    ledger = Ledger(settings.state_dir, creation.program)
    allocation, is_new = _claim(ledger, facts, wanted, asked, settings)
    granted = Grant(ledger, allocation, is_new, edits.Edits(), facts.root)
    try:
        gpus = [gpu for share in allocation.shares if (gpu := facts.gpu(share.uuid))]
        requirements.check(env, facts, gpus)
        folder = f"{ledger.containers}/{allocation.id}"
        # A pod keeps its share, so there is nothing to give back; only to tell that it has stopped.
        needs_hook = owner.is_pod or not creation.is_deleted_here
        paths = edits.Paths(
            SHIM,
            folder,
            [HOOK, "--config", settings.path, "poststop"] if needs_hook else [],
            settings.extra_mounts,
            procfs_hook(spec, creation.bundle, folder + "/procfs", gpus),
        )
        libraries = rootfs.library_folder(spec, creation.bundle)
        own = image_libraries.find(spec, creation.bundle, facts.libraries)
        granted.edits = edits.edits_for(allocation, facts, paths, libraries, parts, own)
        if not facts.root:
            device_nodes.link_numbers(granted.edits.devices)
    except BaseException:
        granted.undo(creation)
        raise
    return granted


def _claim(
    ledger: Ledger, facts: Host, wanted: claim.Claim, asked: request.Asked, settings: Config
) -> tuple[Allocation, bool]:
    rules = rules_of(settings)
    if may_be_decided(wanted.owner, settings) or wanted.request.counted:
        # A container that comes back keeps what it had, whatever was decided since.
        with ledger:
            held = claim.reclaim(ledger, facts, wanted, rules)
        if held:
            return held, False
        from ..ledger import decision_file  # only for pods

        wanted = decision_file.as_decided(wanted, asked, settings)
    return claim.claim(ledger, facts, wanted, rules)


def _refuse_beside_a_slice(spec: Any, asked: request.Asked) -> None:
    """Raises VcudaError: the engine has injected a named slice. One of both would be lost."""
    mounts = spec.get("mounts")
    for mount in mounts if isinstance(mounts, list) else ():
        if not isinstance(mount, dict) or mount.get("destination") != names.GUEST_LIMITS:
            continue
        if f"/containers/{names.SLICE_PREFIX}" in str(mount.get("source")):
            raise VcudaError(
                "a share, and a slice by CDI beside it", asked.where, "ask for one of the two"
            )


def may_be_decided(owner: Owner, settings: Config) -> bool:
    """Whether a scheduler may have its say: of a pod, where the agent keeps decisions."""
    if not owner.is_pod or settings.decisions == OFF:
        return False
    return settings.decisions == REQUIRED or os.path.isdir(
        f"{settings.state_dir}/{names.DECISIONS}"
    )


def check_shim() -> None:
    """Raises VcudaError: this installation has no shim."""
    if not os.path.exists(SHIM):
        raise VcudaError("no libvcuda", SHIM, "install vcuda again, whole")


def shims() -> list[str]:
    """Files of the shim that containers see: this version's, and earlier ones'."""
    try:
        names = os.listdir(_LIBRARY)
    except FileNotFoundError:
        return []
    return sorted({os.path.realpath(f"{_LIBRARY}/{name}") for name in names if ".so" in name})


def host_of(settings: Config) -> Host:
    """The host's facts by these settings; raises VcudaError as host.load does."""
    cache = settings.state_dir + "/host.json"
    return host.load(settings.driver_root, cache, settings.extra_devices)


def rules_of(settings: Config) -> claim.Rules:
    return claim.Rules(
        settings.placement,
        settings.memory_overcommit,
        settings.context_memory,
        settings.meter_copies,
    )


def procfs_hook(spec: Any, bundle: str, folder: str, gpus: list[Gpu]) -> list[str]:
    """The command of the hook that shows the container's own /proc/driver/nvidia, written here.

    Empty where the kernel has no such folder: then there is nothing to hide.
    """
    if not os.path.isdir("/proc/" + names.KERNEL_DRIVER):
        return []
    from ..host import procfs

    procfs.write("/proc/" + names.KERNEL_DRIVER, folder, gpus)
    root = os.path.abspath(rootfs.path_of(spec, bundle))
    return [PROCFS_HOOK, root, os.path.abspath(folder), names.KERNEL_DRIVER]
