"""Compute Edits, in CDI's terms, from an allocation and the host's facts."""

from __future__ import annotations

from ..host import device_nodes, driver_files
from ..host.host import DeviceNode, Host
from ..model import capabilities, names
from ..model.allocation import Allocation
from ..model.errors import VcudaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

READ_ONLY = ["bind", "rprivate", "nosuid", "nodev", "ro"]
READ_WRITE = ["bind", "rprivate", "nosuid", "nodev", "noexec"]
SHIMMED = tuple(names.PRIVATE_DRIVER)
# The folder of 32-bit libraries, by the folder of 64-bit libraries.
_32_BIT_FOLDER = {
    "/usr/lib/x86_64-linux-gnu": "/usr/lib/i386-linux-gnu",
    "/lib/x86_64-linux-gnu": "/lib/i386-linux-gnu",
    "/usr/lib64": "/usr/lib",
    "/lib64": "/usr/lib",
    "/usr/lib": "/usr/lib32",
}
HOOK_ENV = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
HOOK_SECONDS = 30


class Paths:
    """Paths on the host of the files that a container gets beside the driver's.

    shim: libvcuda's file. pages: the folder with `limits` and `usage`. hook: the command of the
    poststop hook, by full path; empty: no hook. extra_mounts: (source, destination) pairs of the
    settings. procfs_hook: the command that mounts the container's /proc/driver/nvidia; empty: no
    hook.
    """

    def __init__(
        self,
        shim: str,
        pages: str,
        hook: list[str],
        extra_mounts: list[list[str]],
        procfs_hook: list[str] | None = None,
    ) -> None:
        self.shim, self.pages, self.hook, self.extra_mounts = shim, pages, hook, extra_mounts
        self.procfs_hook = procfs_hook or []


class Edits:
    """The changes to a container.

    devices: nodes that it gets. denied: nodes of other GPUs, which are removed if the engine
    or an earlier edit added them. mounts: (source, destination, options). hooks: (hook point, OCI
    hook object).
    """

    def __init__(self) -> None:
        self.devices: list[DeviceNode] = []
        self.denied: list[DeviceNode] = []
        self.mounts: list[tuple[str, str, list[str]]] = []
        self.hooks: list[tuple[str, dict[str, Any]]] = []

    def majors(self) -> set[int]:
        """The majors under which another GPU has a node, or could get one."""
        gpus = [node for node in self.devices if device_nodes.is_gpu(node.path)]
        return {node.major for node in [*self.denied, *gpus]}


def edits_for(
    allocation: Allocation,
    host: Host,
    paths: Paths,
    library_folder: str,
    requested: Collection[str] = capabilities.DEFAULT,
    image_libraries: Mapping[str, str] | None = None,
) -> Edits:
    """The edits that give one container its share of each GPU.

    library_folder: the loader's folder in the container. requested: the driver capabilities.
    image_libraries: library name by path in the container, where the image has a driver's
    libraries; the host's are mounted over them.

    Raises VcudaError: a GPU of the allocation has no device node. Source: runtime-spec
    config-linux.md, "Devices", "Allowed Device list".
    """
    edits = Edits()
    _add_devices(edits, allocation, host, requested)
    mounts: dict[str, str] = {}
    for name, source in host.libraries.items():
        if name.startswith(SHIMMED):
            source = paths.shim
        if driver_files.is_wanted(name, requested):
            mounts[f"{library_folder}/{name}"] = source
    mounts.update(over_image_libraries(image_libraries or {}, host, paths.shim))
    for name, source in host.libraries_32_bit.items():
        folder = _32_BIT_FOLDER.get(library_folder)
        if folder and driver_files.is_wanted_32_bit(name, requested):
            mounts[f"{folder}/{name}"] = source
    for path, source in host.files.items():
        if driver_files.is_wanted_file(path, requested):
            mounts[path] = source
    for shimmed, private in names.PRIVATE_DRIVER.items():
        name = shimmed + ".1"
        if name in host.libraries:
            mounts[f"{names.GUEST_DRIVER}/{private}"] = host.libraries[name]
    edits.mounts = [(mounts[path], path, READ_ONLY) for path in sorted(mounts)]
    add = edits.mounts.append
    for path in host.services:
        if driver_files.is_wanted_service(path, requested):
            add((host.root + path, path, READ_WRITE))
    extra = [destination for _, destination in paths.extra_mounts]
    if host.software_state and names.SOFTWARE_GPU_STATE not in extra:
        add((host.software_state, names.SOFTWARE_GPU_STATE, READ_WRITE))
    for source, destination in paths.extra_mounts:
        add((source, destination, READ_WRITE))
    add((paths.pages + "/limits", names.GUEST_LIMITS, [*READ_ONLY, "noexec"]))
    add((paths.pages + "/usage", names.GUEST_USAGE, READ_WRITE))
    if paths.hook:
        edits.hooks.append(("poststop", as_hook([*paths.hook, allocation.id])))
    if paths.procfs_hook:
        edits.hooks.append(procfs_hook(paths.procfs_hook))
    return edits


def _add_devices(
    edits: Edits, allocation: Allocation, host: Host, requested: Collection[str]
) -> None:
    allowed = []
    for share in allocation.shares:
        gpu = host.gpu(share.uuid)
        node = host.nodes.get(f"nvidia{gpu.minor}") if gpu else None
        if node is None:
            raise VcudaError(
                f"allocation {allocation.id} names {share.uuid}, which has no device node",
                f"{host.root}/dev/nvidia*",
                "run 'nvidia-modprobe -c 0 -u' and create the container again",
            )
        if node not in edits.devices:  # MIG devices share their GPU's node
            edits.devices.append(node)
        own = host.gpu_nodes.get(share.uuid, [])
        allowed += own
        access = device_nodes.access_files(host.root + device_nodes.KERNEL, gpu) if gpu else []
        if access and len([name for name in own if name in host.nodes]) < len(access):
            raise VcudaError(
                f"allocation {allocation.id} names {share.uuid}: its capabilities have no nodes",
                f"{host.root}/dev/nvidia-caps",
                f"run 'nvidia-modprobe -f {' -f '.join(access)}' and create the container again",
            )
    of_gpus = {name for owned in host.gpu_nodes.values() for name in owned}
    for name, node in host.nodes.items():
        is_gpu = device_nodes.is_gpu(node.path)
        is_allowed = node in edits.devices if is_gpu else name not in of_gpus or name in allowed
        if not is_allowed:
            edits.denied.append(node)
        elif not is_gpu and device_nodes.is_wanted(name, requested):
            edits.devices.append(node)


def procfs_hook(command: list[str]) -> tuple[str, dict[str, Any]]:
    """The hook point and the hook that mounts the container's /proc/driver/nvidia.

    At createRuntime the container's /proc is mounted, and its root is not yet entered. A bind mount
    in config.json is not possible: runc refuses mounts below /proc.
    """
    return "createRuntime", as_hook(command)


def over_image_libraries(libraries: Mapping[str, str], host: Host, shim: str) -> dict[str, str]:
    """The source of each mount over one of the image's driver libraries, by path inside."""
    return {
        path: shim if name.startswith(SHIMMED) else host.libraries[name]
        for path, name in libraries.items()
    }


def as_hook(command: list[str]) -> dict[str, Any]:
    # With "env": otherwise runc gives the hook the image's environment, LD_PRELOAD included.
    return {"path": command[0], "args": command, "env": HOOK_ENV, "timeout": HOOK_SECONDS}
