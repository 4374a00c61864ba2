"""Edits that depend on the container or its image, which our CDI spec cannot name.

The spec's hook makes them after the engine has injected devices and mounts. For a named slice the
shim is mounted over the image's own libcuda. /proc/driver/nvidia is limited to the container's
GPUs, and the image's NVIDIA_REQUIRE_* are checked.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from ..container import hook_state, image_libraries
from ..container.container import Container, container_of
from ..container.hook_state import State
from ..edits import config_json, edits
from ..edits.edits import Edits
from ..guest import page_file
from ..guest.tree import Tree
from ..host import device_nodes, procfs, requirements
from ..host.host import DeviceNode, Host
from ..ledger.ledger import Ledger
from ..model import names
from ..model.errors import VcudaError
from ..model.gpu import Gpu
from ..pages import layout, page_reader
from ..system import settings_file
from ..system.settings_file import Config
from . import apply_share, calling_runtime


def hook_without_mounts(config: str, state: State, pid: int) -> list[str] | None:
    """The command that makes all edits, [] for no edit; None: the hook has to start Python.

    For the claim socket: its processes may mount nothing. None where there is something to mount, a
    device to close or a refusal to report to the engine, and where a process has to clean up at the
    container's end. pid: of the process that the runtime called as its hook.
    """
    if state.bundle == "/":
        return None
    try:
        _, _, command = calling_runtime.find(pid)
        if command.is_kept:
            return None  # the hook starts a process that cleans up at the container's end
        container = container_of(hook_state.config_of(state), state.id, state.bundle)
        settings = settings_file.load(config)
        more, _ = edits_of(container, settings, apply_share.host_of(settings))
    except (VcudaError, OSError, ValueError):
        return None
    if more.mounts or more.denied:
        return None
    return [word for _, hook in more.hooks for word in hook["args"]]


def edits_of(container: Container, settings: Config, facts: Host) -> tuple[Edits, list[str]]:
    """The edits, and the places of mounts that replace the engine's read-only ones.

    Writes the container's /proc/driver/nvidia. Raises VcudaError: the image's requirements are not
    met, or the container has more than a slice.
    """
    gpus = gpus_of(container, facts)
    requirements.check(container.environment, facts, gpus)
    more = Edits()
    given = mounts_of(container)
    limits = given.get(names.GUEST_LIMITS)
    if limits is not None:
        if container.sees_every_device:
            raise VcudaError(
                "a privileged container sees every GPU, a slice cannot hold it",
                "CDI devices",
                "start it without --privileged",
            )
        _refuse_more_than_the_slice(limits, given, gpus, facts)
        with Tree(container.rootfs) as image:
            own = image_libraries.find(image, container, facts.libraries)
        shim = os.path.realpath(apply_share.SHIM)
        for path, source in edits.over_image_libraries(own, facts, shim).items():
            # The runtime has made an empty file below each mount of the spec: no library.
            if os.path.realpath(given.get(path, "/")) != os.path.realpath(source):
                more.mounts.append((source, path, edits.READ_ONLY))
        more.denied = _opened_by_a_wide_rule(container, facts, gpus)
    writable = _writable_again(container, settings, facts)
    more.mounts += writable
    if command := _procfs_hook(container.rootfs, settings, gpus):
        more.hooks.append(edits.procfs_hook(command))
    return more, [place for _, place, _ in writable]


def gpus_of(container: Container, facts: Host) -> list[Gpu]:
    """The GPUs of the device nodes that the container has."""
    given = set(container.devices)

    def is_given(gpu: Gpu) -> bool:
        own = facts.gpu_nodes[gpu.uuid] if gpu.mig else []
        return given.issuperset(f"/dev/{name}" for name in (f"nvidia{gpu.minor}", *own))

    return [gpu for gpu in facts.gpus if not gpu.divided and is_given(gpu)]


def _opened_by_a_wide_rule(
    container: Container, facts: Host, gpus: Sequence[Gpu]
) -> list[DeviceNode]:
    """The nodes of other GPUs that a device rule of the container allows beside its slice."""
    mine = {f"nvidia{gpu.minor}" for gpu in gpus}
    mine.update(name for gpu in gpus for name in facts.gpu_nodes.get(gpu.uuid, ()))
    of_gpus = {name for owned in facts.gpu_nodes.values() for name in owned}
    others = [
        node
        for name, node in facts.nodes.items()
        if name not in mine and (device_nodes.is_gpu(node.path) or name in of_gpus)
    ]
    majors = {node.major for node in others}
    is_wide = any(config_json.is_wide(rule, majors) for rule in container.device_rules)
    return others if is_wide else []


def mounts_of(container: Container) -> dict[str, str]:
    """Sources by destination; the last mount on a destination counts."""
    return {mount.destination: mount.source for mount in container.mounts}


def _writable_again(
    container: Container, settings: Config, facts: Host
) -> list[tuple[str, str, list[str]]]:
    """Our mounts that the engine made read-only.

    Docker 29 does this to all mounts but users' volumes if the root is read-only. A bind mount of
    another source stays unchanged.
    """
    ours = {names.SOFTWARE_GPU_STATE: facts.software_state}
    ours.update({place: source for source, place in settings.extra_mounts})
    ours.update({path: facts.root + path for path in facts.services})
    limits = mounts_of(container).get(names.GUEST_LIMITS, "")
    folder = os.path.dirname(os.path.realpath(limits))
    pages = f"{os.path.realpath(settings.state_dir)}/containers/"
    if folder.startswith((pages + names.SLICE_PREFIX, pages + names.CLAIM_PREFIX)):
        ours[names.GUEST_USAGE] = os.path.dirname(limits) + "/usage"
    return [
        (mount.source, mount.destination, edits.READ_WRITE)
        for mount in container.mounts
        if "ro" in mount.options and mount.source and ours.get(mount.destination) == mount.source
    ]


def _refuse_more_than_the_slice(
    limits: str, mounts: dict[str, str], gpus: Sequence[Gpu], facts: Host
) -> None:
    """Raises VcudaError: the container has a GPU outside the slice, or a whole one beside it."""
    try:
        page = page_reader.read_limits(page_file.read_page(limits, layout.LIMITS_SIZE))
        inside = {gpu.uuid for gpu in page.gpus}
    except ValueError as error:
        hint = "run 'vcuda cdi remove' for the slice, then 'vcuda cdi generate' with it"
        raise VcudaError(str(error), limits, hint) from error
    driver = facts.libraries.get("libcuda.so.1")
    has_driver = driver in [
        source
        for place, source in mounts.items()
        if place.endswith("/libcuda.so.1") and not place.startswith(names.GUEST_DIR)
    ]
    if has_driver or not inside.issuperset(gpu.uuid for gpu in gpus):
        raise VcudaError("a slice and more of the GPUs", "CDI devices", "give it the slice alone")


def write_procfs(settings: Config, gpus: Sequence[Gpu]) -> None:
    """Write /proc/driver/nvidia for a container with these GPUs, for hooks without root."""
    kernel = "/proc/" + names.KERNEL_DRIVER
    if os.path.isdir(kernel):
        procfs.write(kernel, _procfs_folder(settings, gpus), gpus)


def _procfs_hook(root: str, settings: Config, gpus: Sequence[Gpu]) -> list[str]:
    # All containers with these GPUs share the folder: one process writes at a time.
    may_write = os.access(settings.state_dir, os.W_OK)
    with Ledger(settings.state_dir) if may_write else contextlib.nullcontext():
        return apply_share.procfs_hook(root, _procfs_folder(settings, gpus), list(gpus))


def _procfs_folder(settings: Config, gpus: Sequence[Gpu]) -> str:
    # For a MIG device also its instances: the GPU may be divided again.
    parts = [".".join(map(str, (gpu.minor, *(gpu.mig or ())))) for gpu in gpus]
    return f"{settings.state_dir}/procfs/{'-'.join(parts) or 'none'}"
