"""From an allocation and the host's facts to what changes in ``config.json``, in CDI's words."""

from __future__ import annotations

from . import jsontree, names
from .errors import VcudaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .allocation import Allocation
    from .host import DeviceNode, Host

_READ_ONLY = ["bind", "rprivate", "nosuid", "nodev", "ro"]
_READ_WRITE = ["bind", "rprivate", "nosuid", "nodev", "noexec"]
# Private copies of the driver, which only the shim opens.
SHIMMED = ("libcuda.so.", "libnvidia-ml.so.")
HOOK_ENV = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
HOOK_SECONDS = 30


class Paths:
    """Where the host keeps what the container gets beside the driver.

    shim: libvcuda's file. pages: the folder with `limits` and `usage`. hook: the command of the
    poststop hook, by full path. extra_mounts: (source, destination) pairs of the settings.
    """

    def __init__(
        self, shim: str, pages: str, hook: list[str], extra_mounts: list[list[str]]
    ) -> None:
        self.shim, self.pages, self.hook, self.extra_mounts = shim, pages, hook, extra_mounts


class Edits:
    """Device nodes, mounts (source, destination, options) and hooks (by name: OCI hook objects).

    not_granted: the nodes of the host's other GPUs, which an earlier edit of the same bundle, or an
    engine that gives every GPU, may have left there.
    """

    def __init__(self) -> None:
        self.devices: list[DeviceNode] = []
        self.not_granted: list[DeviceNode] = []
        self.mounts: list[tuple[str, str, list[str]]] = []
        self.hooks: list[tuple[str, dict[str, Any]]] = []


def edits_for(allocation: Allocation, host: Host, paths: Paths, library_folder: str) -> Edits:
    """Edits that give one container its share of each GPU.

    library_folder: where the container's loader looks, as the container sees it.

    Raises VcudaError: a GPU of the allocation has no device node. Source: runtime-spec
    config-linux.md, "Devices", "Allowed Device list".
    """
    edits = Edits()
    for share in allocation.shares:
        gpu = host.gpu(share.uuid)
        node = host.nodes.get(f"nvidia{gpu.minor}") if gpu else None
        if node is None:
            raise VcudaError(
                f"allocation {allocation.id} names {share.uuid}, which has no device node",
                f"{host.root}/dev/nvidia*",
                "run 'nvidia-modprobe -c 0 -u' and create the container again",
            )
        edits.devices.append(node)
    for name, node in host.nodes.items():
        if not name[len("nvidia") :].isdigit():
            edits.devices.append(node)
        elif node not in edits.devices:
            edits.not_granted.append(node)
    add = edits.mounts.append
    for name, real in sorted(host.libraries.items()):
        public = f"{library_folder}/{name}"
        if not name.startswith(SHIMMED):
            add((f"{host.folder}/{real}", public, _READ_ONLY))
            continue
        add((paths.shim, public, _READ_ONLY))
        if name.endswith(".so.1"):
            add((f"{host.folder}/{real}", f"{names.GUEST_DRIVER}/{name}", _READ_ONLY))
    for binary in host.binaries:
        add((host.root + binary, binary, _READ_ONLY))
    for source, destination in paths.extra_mounts:
        add((source, destination, _READ_WRITE))
    add((paths.pages + "/limits", names.GUEST_LIMITS, [*_READ_ONLY, "noexec"]))
    add((paths.pages + "/usage", names.GUEST_USAGE, _READ_WRITE))
    edits.hooks.append(
        (
            "poststop",
            # An env of its own: runc gives a hook without one the image's, LD_PRELOAD included.
            {
                "path": paths.hook[0],
                "args": [*paths.hook, allocation.id],
                "env": HOOK_ENV,
                "timeout": HOOK_SECONDS,
            },
        )
    )
    return edits


def apply(spec: Mapping[str, Any], edits: Edits) -> dict[str, Any]:
    """An edited copy of `spec`; what we do not know survives, and applying twice is once.

    Raises VcudaError: a part of the spec that must change is not of the kind OCI says.
    """
    edited: dict[str, Any] = jsontree.copy(dict(spec))
    linux = _child(edited, "linux", {})
    devices = _child(linux, "devices", [])
    rules = _child(_child(linux, "resources", {}), "devices", [])
    for node in edits.not_granted:
        devices[:] = [item for item in devices if not _is_node(item, node)]
        rules[:] = [rule for rule in rules if not _allows(rule, node)]
    for node in edits.devices:
        _replace(devices, _as_device(node), "path")
        rule = _as_rule(node)
        if rule in rules:
            rules.remove(rule)
        rules.append(rule)  # the last rule that matches decides
    mounts = _child(edited, "mounts", [])
    for source, destination, options in edits.mounts:
        mount = {
            "destination": destination,
            "type": "bind",
            "source": source,
            "options": list(options),
        }
        _replace(mounts, mount, "destination")
    for kind, hook in edits.hooks:
        _replace(_child(_child(edited, "hooks", {}), kind, []), jsontree.copy(hook), "args")
    return edited


def _child(parent: dict[str, Any], key: str, empty: Any) -> Any:
    """The child `key`, made where it is missing or null."""
    child = parent.get(key)
    if child is None:
        child = parent[key] = empty
    if type(child) is not type(empty):
        kind = "a list" if isinstance(empty, list) else "an object"
        raise VcudaError(f"'{key}' is not {kind}", "config.json", "mend it as the OCI spec says")
    return child


def _replace(items: list[Any], new: dict[str, Any], key: str) -> None:
    """Put `new` last, in place of what has the same `key`: the last mount on a place wins."""
    items[:] = [i for i in items if not (isinstance(i, dict) and i.get(key) == new[key])]
    items.append(new)


def _is_node(item: Any, node: DeviceNode) -> bool:
    """Whether a device or a rule of the spec is about exactly this node."""
    number = (node.major, node.minor)
    if not isinstance(item, dict) or item.get("type") not in ("c", "u"):
        return False
    return (item.get("major"), item.get("minor")) == number


def _allows(rule: Any, node: DeviceNode) -> bool:
    return _is_node(rule, node) and rule.get("allow") is True


def _as_device(node: DeviceNode) -> dict[str, Any]:
    return {
        "path": node.path,
        "type": "c",
        "major": node.major,
        "minor": node.minor,
        "fileMode": 0o666,
        "uid": 0,
        "gid": 0,
    }


def _as_rule(node: DeviceNode) -> dict[str, Any]:
    return {"allow": True, "type": "c", "major": node.major, "minor": node.minor, "access": "rw"}
