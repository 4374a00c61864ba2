"""The CDI spec, for engines that inject CDI devices themselves.

The spec is written before any container exists, so it contains nothing that depends on one. A whole
GPU has no pages, and its libraries are the driver's own. A named slice has its own pages, which all
its containers share. Edits that depend on the container or its image are made by one hook,
`vcuda-container-hook cdi`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..host.device_nodes import is_gpu
from ..host.host import DeviceNode, Host
from ..model import names
from ..model.allocation import Allocation, GpuShare
from ..model.gpu import Gpu
from ..system import machine
from . import edits as edit
from .edits import Edits

# The first version with hostPath for device nodes.
VERSION = "0.5.0"
# The image is unknown: libraries are mounted in Red Hat's folder and in the host's.
_FOLDERS = ("/usr/lib64",)
# Otherwise a runtime wrapper would add the GPUs that the image's own variable names.
_ENV = [f"{names.NVIDIA_VISIBLE_DEVICES}=void"]


def spec(
    host: Host,
    paths: edit.Paths,
    offered: Collection[str],
    slices: Mapping[str, tuple[Allocation, str]],
    kind: str = names.CDI_KIND,
) -> dict[str, Any]:
    """The spec with every GPU by index and by UUID, with `all`, and with the slices.

    A GPU in MIG mode gives all its MIG devices, which have names of their own too. paths: without
    pages; the hook is the spec's. offered: the driver capabilities that the settings allow, because
    the container's request is unknown. slices: by device name, the allocation and the folder of its
    pages. Raises VcudaError: a GPU has no device node. Source: CDI's SPEC.md.
    """

    def edits(shares: list[GpuShare], pages: str = "") -> Edits:
        with_pages = edit.Paths(paths.shim, pages, paths.hook, paths.extra_mounts)
        return _edits(host, shares, with_pages, offered)

    devices: list[tuple[str, Edits]] = []
    for gpu in host.gpus:
        if shares := _shares(host.parts(gpu)):
            whole = _whole(edits(shares), paths.shim)
            devices += [(gpu.name, whole), (gpu.uuid, whole)]
    shares = _shares([gpu for gpu in host.gpus if not gpu.divided])
    devices.append(("all", _whole(edits(shares), paths.shim)))
    for name, (allocation, pages) in slices.items():
        devices.append((name, edits(allocation.shares, pages)))
    return _tree(host, devices, kind, paths.hook)


def spec_of_one(
    host: Host,
    paths: edit.Paths,
    offered: Collection[str],
    kind: str,
    name: str,
    held: Allocation,
    mounts: Sequence[tuple[str, str, list[str]]] = (),
) -> dict[str, Any]:
    """The spec with one device, which gives the shares of an allocation.

    paths: with the allocation's pages. mounts: more of them. Raises VcudaError: a GPU has no device
    node.
    """
    made = _edits(host, held.shares, paths, offered)
    made.mounts += mounts
    return _tree(host, [(name, made)], kind, paths.hook)


def _tree(
    host: Host, devices: Sequence[tuple[str, Edits]], kind: str, hook: list[str]
) -> dict[str, Any]:
    nodes = _in_all([[_node(host, node) for node in item.devices] for _, item in devices])
    mounts = _in_all([[_mount(*mount) for mount in item.mounts] for _, item in devices])
    # With a single GPU all nodes are common, but a device must have edits of its own.
    nodes = [node for node in nodes if not is_gpu(node["path"])]
    return {
        "cdiVersion": VERSION,
        "kind": kind,
        "containerEdits": {
            "env": _ENV,
            "deviceNodes": nodes,
            "mounts": mounts,
            # Not in the devices: a container with several devices would get the hook several times.
            "hooks": [
                {"hookName": name, **edit.as_hook(hook)} for name in ("createRuntime", "poststop")
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
    """Edits for an unknown image, without hooks."""
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
    """The edits with the driver's own libraries instead of the shim, and without pages."""
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
    # No major and minor: the engine reads them when a container starts. They change when the
    # kernel module is loaded again.
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
