"""Claim a container's share and compute the edits that give it: shared by all entry points."""

from __future__ import annotations

import os
import time

from ..container import engine_name, image_libraries, request
from ..container.container import Container
from ..container.identity import Owner, owner_of
from ..edits import edits
from ..edits.edits import Edits
from ..guest import mount_points
from ..guest.tree import Tree
from ..host import device_nodes, host, requirements
from ..host.host import Host
from ..ledger import claim, events
from ..ledger.ledger import Ledger
from ..model import capabilities, names, policies
from ..model.allocation import Allocation
from ..model.errors import NotKnownYetError, VcudaError
from ..model.gpu import Gpu
from ..placement.rules import Rules, rules_of
from ..system.settings_file import OFF, REQUIRED, Config
from . import left_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# <prefix>/lib/vcuda/python/vcuda_oci/start/apply_share.py
_LIBRARY = os.path.abspath(__file__).rsplit("/", 4)[0]
SHIM = _LIBRARY + "/libvcuda.so.1"
PROCFS_HOOK = _LIBRARY + "/vcuda-procfs-hook"
TURN_KEEPER = _LIBRARY + "/vcuda-turn-keeper"
HOOK = os.path.dirname(os.path.dirname(_LIBRARY)) + "/bin/vcuda-container-hook"


class Creation:
    """How a container is created.

    runtime: the command line that asks the low-level runtime for the container's state, up to the
    verb. claimant: a process that lives until the container exists, or is its first process.
    program: the one that creates it, for events. is_deleted_here: the launcher sees the delete too
    and releases the share. has_left: whether the caller has stopped waiting for this claim, so that
    it may have claimed by itself since.
    """

    def __init__(
        self,
        runtime: list[str],
        claimant: int,
        program: str,
        is_deleted_here: bool = False,
        has_left: Callable[[], bool] = bool,
    ) -> None:
        self.runtime, self.claimant, self.program = runtime, claimant, program
        self.is_deleted_here, self.has_left = is_deleted_here, has_left


class ClaimedShare:
    """A claimed share and the edits that give it. driver_root: where the device nodes are."""

    def __init__(
        self, ledger: Ledger, allocation: Allocation, is_new: bool, edits: Edits, driver_root: str
    ) -> None:
        self.ledger, self.allocation, self.is_new = ledger, allocation, is_new
        self.edits, self.driver_root = edits, driver_root

    def undo(self, creation: Creation) -> None:
        """Release what this claim took. A container that had it before keeps it, and so does one
        that went on without this claim's answer; if it ended, a sweep releases it."""
        if self.is_new:
            with self.ledger:  # no other claim meanwhile
                if not creation.has_left():
                    self.ledger.remove(self.allocation.id)
            try:
                left_over.destroy_released(self.ledger)
            except VcudaError:
                pass  # the next sweep tries again; the caller has an error already


def may_count(raw: request.RawRequest, container: Container) -> bool:
    """Whether the request counts under any settings at all.

    Checked before the settings are read: a mistake in them must not stop a pod that has
    NVIDIA's variable from its image only, as many do.
    """
    return not (container.is_sandbox or (raw.from_env and container.is_pod))


def give(
    container: Container,
    raw: request.RawRequest,
    settings: Config,
    creation: Creation,
    apply: Callable[[ClaimedShare], None],
) -> str:
    """Claim the container's share, have `apply` give it to the container, and record the event.

    Returns the allocation's id; "", with nothing done, where the settings do not let the request
    count. Raises VcudaError with nothing claimed.
    """
    began = time.monotonic()
    try:
        claimed = claim_share(container, raw, settings, creation)
        if claimed is None:
            return ""
        _note_mount_points(claimed, creation, container.rootfs)
        try:
            apply(claimed)
        except BaseException:
            claimed.undo(creation)
            raise
    except NotKnownYetError:
        raise
    except VcudaError as error:
        record_refusal(container, settings, creation.program, error)
        raise
    allocation, seconds = claimed.allocation, time.monotonic() - began
    if claimed.is_new:
        claimed.ledger.record_event(events.CLAIMED, allocation, events.of(allocation), seconds)
    elif allocation.claimant[0] == creation.claimant:
        claimed.ledger.record_event(events.TAKEN_OVER, allocation, events.of(allocation), seconds)
    return allocation.id


def _note_mount_points(claimed: ClaimedShare, creation: Creation, root: str) -> None:
    # The low-level runtime refuses a second creation: the list is of the first one.
    is_of_another = claimed.allocation.claimant[0] != creation.claimant
    if root and not is_of_another:
        folder = f"{claimed.ledger.containers}/{claimed.allocation.id}"
        mount_points.note(folder, root, [place for _, place, _ in claimed.edits.mounts])


def record_refusal(container: Container, settings: Config, program: str, error: VcudaError) -> None:
    """Record the refusal under the id that the allocation would have had."""
    owner = _owner(container)
    error.allocation = owner.key
    more = events.about(container.id, claim.pod_of(owner), engine_name.noted(container))
    events.record(settings.state_dir, program, events.REFUSED, owner.key, str(error), **more)


def id_of(container: Container) -> str:
    """The id of the allocation that the container has, or would have."""
    return _owner(container).key


def _owner(container: Container) -> Owner:
    """The container's id stands for an invalid identity."""
    try:
        return owner_of(container.annotations, container.id)
    except VcudaError:
        return Owner(container.id, container.id)


def claim_share(
    container: Container, raw: request.RawRequest, settings: Config, creation: Creation
) -> ClaimedShare | None:
    """Claim the container's share; None: the settings do not let the request count.

    Raises VcudaError with nothing claimed.
    """
    if not _counts(container, raw, settings):
        return None
    _refuse_beside_a_slice(container, raw)
    owner = owner_of(container.annotations, container.id)
    engine = engine_name.noted(container)
    owner = owner.replaced(engine=engine, sandbox_file=container.sandbox_file)
    wanted = claim.Claim(owner, request.parse(raw), creation.runtime, creation.claimant)
    parts = capabilities.requested(
        container.environment.get(names.NVIDIA_DRIVER_CAPABILITIES, ""),
        settings.driver_capabilities,
    )
    check_shim()
    facts = host_of(settings)
    ledger = Ledger(settings.state_dir, creation.program)
    allocation, is_new = _claim(ledger, facts, wanted, raw, settings)
    claimed = ClaimedShare(ledger, allocation, is_new, edits.Edits(), facts.root)
    try:
        if allocation.isolation == policies.MIG and is_new:
            facts = host_of(settings)  # with the new MIG device
        gpus = [gpu for share in allocation.shares if (gpu := facts.gpu(share.uuid))]
        requirements.check(container.environment, facts, gpus)
        folder = f"{ledger.containers}/{allocation.id}"
        # A pod keeps its share, so there is nothing to release; only the stop is recorded.
        needs_hook = owner.is_pod or not creation.is_deleted_here
        paths = edits.Paths(
            SHIM,
            folder,
            [HOOK, "--config", settings.path, "poststop"] if needs_hook else [],
            settings.extra_mounts,
            procfs_hook(container.rootfs, folder + "/procfs", gpus),
        )
        with Tree(container.rootfs) as image:
            libraries = image_libraries.library_folder(image)
            own = image_libraries.find(image, container, facts.libraries)
        claimed.edits = edits.edits_for(allocation, facts, paths, libraries, parts, own)
        if allocation.isolation == policies.MPS:
            from ..fences import mps_claim  # late: few containers are under MPS

            claimed.edits.mounts += mps_claim.wait(ledger, facts, allocation)
        if not facts.root:
            device_nodes.link_numbers(claimed.edits.devices)
    except BaseException:
        claimed.undo(creation)
        raise
    return claimed


def _counts(container: Container, raw: request.RawRequest, settings: Config) -> bool:
    setting, is_privileged = settings.accept_request_from_env, container.sees_every_device
    if not request.counts(raw, setting, container.is_pod, is_privileged):
        return False
    if not raw.sources:
        return True
    place = settings.state_dir
    return request.has_agent_sources(raw, (os.path.normpath(place), os.path.realpath(place)))


def _claim(
    ledger: Ledger, facts: Host, wanted: claim.Claim, raw: request.RawRequest, settings: Config
) -> tuple[Allocation, bool]:
    rules = rules_of(settings)
    isolation = wanted.request.terms.isolation or settings.isolation
    if may_be_decided(wanted.owner, settings) or wanted.request.counted:
        # A restarted container retains its share, whatever was decided since.
        with ledger:
            held = claim.reclaim(ledger, facts, wanted, rules)
        if held:
            return held, False
        from ..ledger import decision_file  # only for pods

        wanted = decision_file.as_decided(wanted, raw, settings)
        isolation = wanted.request.terms.isolation or isolation
    return claim_as(isolation, ledger, facts, wanted, rules)


def claim_as(
    isolation: str, ledger: Ledger, facts: Host, wanted: claim.Claim, rules: Rules
) -> tuple[Allocation, bool]:
    """As `claim.claim`, behind the fence. isolation: one of policies.ISOLATIONS; "": turns. Raises
    VcudaError: refused."""
    if isolation == policies.MPS:
        from ..fences import mps_claim  # late: few containers are under MPS

        return mps_claim.claim_mps(ledger, facts, wanted, rules)
    decided = {share.uuid for share in wanted.decided}  # or indexes
    divided = [gpu for gpu in facts.gpus if gpu.divided]
    if isolation == policies.AUTO and any({gpu.uuid, gpu.name} & decided for gpu in divided):
        isolation = policies.MIG  # a scheduler saw that no share fits
    try:
        if isolation != policies.MIG:
            return claim.claim(ledger, facts, wanted, rules)
    except claim.NoPlace:
        if isolation != policies.AUTO or not facts.has_divided:
            raise
    from ..fences import instance_claim  # late: it calls NVML

    return instance_claim.claim_instance(ledger, facts, wanted, rules)


def _refuse_beside_a_slice(container: Container, raw: request.RawRequest) -> None:
    """Raises VcudaError: the engine has injected a named slice or a claim's share; a container can
    have only one."""
    others = (
        (names.SLICE_PREFIX, "asks for a share and for a slice by CDI"),
        (names.CLAIM_PREFIX, "asks for a share and has a claim's"),
    )
    for mount in container.mounts:
        if mount.destination == names.GUEST_LIMITS:
            for prefix, what in others:
                if f"/containers/{prefix}" in mount.source:
                    raise VcudaError(what, raw.where, "ask for one of the two")


def may_be_decided(owner: Owner, settings: Config) -> bool:
    """Whether a scheduler may have decided: for a pod, where the agent keeps decisions."""
    if not owner.is_pod or settings.decisions == OFF:
        return False
    return settings.decisions == REQUIRED or os.path.isdir(
        f"{settings.state_dir}/{names.DECISIONS}"
    )


def check_shim() -> None:
    """Raises VcudaError: this installation has no shim."""
    if not os.path.exists(SHIM):
        raise VcudaError("no libvcuda", SHIM, "reinstall vcuda")


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


def procfs_hook(root: str, folder: str, gpus: list[Gpu]) -> list[str]:
    """The command of the hook that gives the container its own /proc/driver/nvidia; writes its
    files.

    root: of the container. Empty if the kernel has no such folder.
    """
    if not os.path.isdir("/proc/" + names.KERNEL_DRIVER):
        return []
    from ..host import procfs  # only with the kernel driver

    procfs.write("/proc/" + names.KERNEL_DRIVER, folder, gpus)
    return [PROCFS_HOOK, os.path.abspath(root), os.path.abspath(folder), names.KERNEL_DRIVER]
