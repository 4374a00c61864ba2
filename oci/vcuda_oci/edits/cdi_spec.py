"""The Edits as a CDI spec, for engines that inject CDI devices themselves.

A spec is written before any container exists, so it can't hold what is made for one: a whole GPU
needs no pages, its libraries are the driver's own; a named slice brings its own pages, which all
containers that are given the slice share. What takes the container or its image to know is left to
one hook, `vcuda-container-hook cdi`.
"""

from __future__ import annotations

from ..host.device_nodes import is_gpu
from ..model import names
from ..model.allocation import Allocation, GpuShare
from ..system import machine
from . import edits as edit
from .edits import Edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from ..host.host import DeviceNode, Host
    from ..model.gpu import Gpu

# The first with hostPath for device nodes.
VERSION = "0.5.0"
# A spec doesn't know the image: each library goes to the loader's folder of both families.
_FOLDERS = ("/usr/lib64",)
# What an image's own variable asks for would come on top, by our wrapper or another's.
_ENV = [f"{names.NVIDIA_VISIBLE_DEVICES}=void"]


def spec(
    host: Host,
    paths: edit.Paths,
    offered: Collection[str],
    slices: Mapping[str, tuple[Allocation, str]],
    kind: str = names.CDI_KIND,
) -> dict[str, Any]:
    """The spec of every GPU, by index and by UUID, of `all`, and of the slices.

    A GPU in MIG mode stands for its MIG devices, which are named too.

    paths: without pages; its hook is the spec's. offered: the driver capabilities that the settings
    allow: no container can be asked for its own.
    slices: by device name, the allocation and the folder of its pages. Raises VcudaError: a GPU has
    no device node. Source: CDI's SPEC.md.
    """

    def edits(shares: list[GpuShare], pages: str = "") -> Edits:
        whose = edit.Paths(paths.shim, pages, paths.hook, paths.extra_mounts)
        return _edits(host, shares, whose, offered)

    devices: list[tuple[str, Edits]] = []
    for gpu in host.gpus:
        if shares := _shares(host.parts(gpu)):
            whole = _whole(edits(shares), paths.shim)
            devices += [(gpu.name, whole), (gpu.uuid, whole)]
    shares = _shares([gpu for gpu in host.gpus if not gpu.divided])
    devices.append(("all", _whole(edits(shares), paths.shim)))
    for name, (allocation, pages) in slices.items():
        devices.append((name, edits(allocation.shares, pages)))
    nodes = _in_all([[_node(host, node) for node in item.devices] for _, item in devices])
    mounts = _in_all([[_mount(*mount) for mount in item.mounts] for _, item in devices])
    # Of a single GPU everything is in all devices, and a device without edits of its own is none.
    nodes = [node for node in nodes if not is_gpu(node["path"])]
    return {
        "cdiVersion": VERSION,
        "kind": kind,
        "containerEdits": {
            "env": _ENV,
            "deviceNodes": nodes,
            "mounts": mounts,
            # Here and not with the devices: a container of several is given it once.
            "hooks": [
                {"hookName": name, **edit.as_hook(paths.hook)}
                for name in ("createRuntime", "poststop")
            ],
        },
        "devices": [
            {
                "name": name,
                "containerEdits": {
                    "deviceNodes": _without(nodes, [_node(host, node) for node in item.devices]),
                    "mounts": _without(mounts, [_mount(*mount) for mount in item.mounts]),
                },
            }
            for name, item in devices
        ],
    }


def _edits(
    host: Host, shares: list[GpuShare], paths: edit.Paths, offered: Collection[str]
) -> Edits:
    """Edits for any image, without hooks."""
    allocation = Allocation("cdi", shares, {}, "", [], [0, 0], 0, {})
    made = Edits()
    native = host.folder[len(host.root) :]
    other = _FOLDERS if native not in _FOLDERS else (machine.THIS.multiarch,)
    for folder in (native, *other):
        part = edit.edits_for(allocation, host, paths, folder, offered)
        made.devices = part.devices
        known = {destination for _, destination, _ in made.mounts}
        made.mounts += [mount for mount in part.mounts if mount[1] not in known]
    return made


def _shares(gpus: Sequence[Gpu]) -> list[GpuShare]:
    return [GpuShare(gpu.uuid, gpu.memory_bytes, 100) for gpu in gpus]


def _whole(edits: Edits, shim: str) -> Edits:
    """The same with the driver's own libraries in place of the shim, and no pages."""
    own = {
        destination[len(names.GUEST_DRIVER) + 1 :]: source
        for source, destination, _ in edits.mounts
        if destination.startswith(names.GUEST_DRIVER + "/")
    }
    plain = Edits()
    plain.devices = edits.devices
    for source, destination, options in edits.mounts:
        if destination.startswith(names.GUEST_DIR + "/"):
            continue
        if source == shim:
            library = destination.rpartition("/")[2].partition(".so")[0]
            source = own[names.PRIVATE_DRIVER[library + ".so"]]
        plain.mounts.append((source, destination, options))
    return plain


def _node(host: Host, node: DeviceNode) -> dict[str, Any]:
    # Without numbers the engine looks them up when a container starts: a module that is loaded
    # again may get others.
    return {
        "path": node.path,
        "hostPath": host.root + node.path,
        "permissions": "rw",
        "fileMode": 0o666,
        "uid": 0,
        "gid": 0,
    }


def _mount(source: str, destination: str, options: list[str]) -> dict[str, Any]:
    return {"hostPath": source, "containerPath": destination, "options": options}


def _in_all(lists: Sequence[list[Any]]) -> list[Any]:
    return [item for item in lists[0] if all(item in other for other in lists)]


def _without(common: list[Any], items: list[Any]) -> list[Any]:
    return [item for item in items if item not in common]
