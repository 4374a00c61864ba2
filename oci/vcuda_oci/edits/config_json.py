"""Apply Edits to ``config.json``."""

from __future__ import annotations

from ..host.device_nodes import DeviceNode
from ..model import jsontree
from ..model.errors import VcudaError
from .edits import Edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

# Annotations with which crun writes the output of hooks to files of the host. With Podman, an image
# may set them.
CRUN_OUTPUT = ("run.oci.hooks.stdout", "run.oci.hooks.stderr")
_SPEC_HINT = "correct it as the OCI spec says"


def apply(spec: Mapping[str, Any], edits: Edits) -> dict[str, Any]:
    """Return an edited copy of `spec`.

    Unknown fields stay. Applying the same edits twice changes nothing more. The copy shares the
    parts that do not change with `spec`. Raises VcudaError: a part to change has a wrong type.
    """
    edited = dict(spec)
    linux = _child(edited, "linux", {})
    devices = _child(linux, "devices", [])
    rules = _child(_child(linux, "resources", {}), "devices", [])
    for node in edits.denied:
        devices[:] = [item for item in devices if not _is_node(item, node)]
        rules[:] = [it for it in rules if not (_is_node(it, node) and it.get("allow") is True)]
    majors = edits.majors()
    # Access to mknod only: cgroup v1 knows no exceptions, so no deny rule can narrow a wide one.
    rules[:] = [{**rule, "access": "m"} if is_wide(rule, majors) else rule for rule in rules]
    for node in edits.devices:
        _replace(devices, _as_device(node), "path")
        rule = _as_rule(node)
        if rule in rules:
            rules.remove(rule)
        rules.append(rule)  # the last rule that matches decides
    added: dict[str, Any] = {}
    for source, destination, options in edits.mounts:
        added.pop(destination, None)  # the last mount at a destination wins
        added[destination] = {
            "destination": destination,
            "type": "bind",
            "source": source,
            "options": list(options),
        }
    mounts = _child(edited, "mounts", [])
    mounts[:] = [item for item in mounts if not _is_mounted_at(item, added)]
    mounts += added.values()
    annotations = edited.get("annotations")
    if edits.hooks and isinstance(annotations, dict):
        kept = {key: value for key, value in annotations.items() if key not in CRUN_OUTPUT}
        edited["annotations"] = kept
    for kind, hook in edits.hooks:
        hooks = _child(_child(edited, "hooks", {}), kind, [])
        _replace(hooks, jsontree.copy(hook), "args")
        hooks.insert(0, hooks.pop())  # first, because a hook that fails stops those after it
    return edited


def _child(parent: dict[str, Any], key: str, empty: Any) -> Any:
    """Replace the child `key` by a copy, or by `empty` if it is missing or null; return it."""
    child = parent.get(key)
    if child is None:
        child = empty
    if type(child) is not type(empty):
        kind = "a list" if isinstance(empty, list) else "an object"
        raise VcudaError(f"'{key}' is not {kind}", "config.json", _SPEC_HINT)
    parent[key] = child.copy()
    return parent[key]


def _replace(items: list[Any], new: dict[str, Any], key: str) -> None:
    """Append `new`, and remove items with the same value of `key`."""
    items[:] = [i for i in items if not (isinstance(i, dict) and i.get(key) == new[key])]
    items.append(new)


def _is_mounted_at(mount: Any, destinations: Collection[str]) -> bool:
    destination = mount.get("destination") if isinstance(mount, dict) else None
    return isinstance(destination, str) and destination in destinations


def _is_node(item: Any, node: DeviceNode) -> bool:
    """Whether a device or a device rule of the spec is for exactly this node."""
    number = (node.major, node.minor)
    if not isinstance(item, dict) or item.get("type") not in ("c", "u"):
        return False
    return (item.get("major"), item.get("minor")) == number


def is_wide(rule: Any, majors: Collection[int]) -> bool:
    """Whether the rule allows opening all devices of one of these majors, such as 'c 195:* rwm'.

    A rule for all majors does not count: it belongs to a privileged container.
    """
    if not isinstance(rule, dict) or rule.get("allow") is not True:
        return False
    if rule.get("type") not in ("c", "u", "a", None) or rule.get("minor") not in (None, -1):
        return False
    access = rule.get("access")
    opens = not isinstance(access, str) or "r" in access or "w" in access
    return opens and type(rule.get("major")) is int and rule["major"] in majors


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
