"""The configuration file of nvidia-mig-parted, version v1: pure.

Source: nvidia-mig-parted, api/spec/v1, and its examples/config.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_oci.model.errors import VcudaError

VERSION = "v1"
ALL = "all"
_KEYS = {"device-filter", "devices", "mig-enabled", "mig-devices"}
_MOST = 16


class Part(NamedTuple):
    """What some GPUs shall have.

    devices: indexes of GPUs; None: all. filter: PCI ids, "0x233010DE"; empty: any. enabled: MIG
    mode. instances: number by profile.
    """

    devices: tuple[int, ...] | None
    filter: tuple[str, ...]
    enabled: bool
    instances: Mapping[str, int]

    def covers(self, index: int, pci_id: str) -> bool:
        """pci_id: of the GPU, "" if unknown."""
        by_filter = not self.filter or pci_id.lower() in map(str.lower, self.filter)
        return by_filter and (self.devices is None or index in self.devices)


def layout_of(tree: Any, name: str, path: str) -> list[Part]:
    """The layout of this name. Raises VcudaError: it is not there, or not what v1 has."""
    if not isinstance(tree, dict) or tree.get("version") != VERSION:
        raise VcudaError(f"is not of version {VERSION}", path, f"write 'version: {VERSION}'")
    layouts = tree.get("mig-configs")
    if not isinstance(layouts, dict) or name not in layouts:
        named = ", ".join(map(str, layouts)) if isinstance(layouts, dict) else "no mig-configs"
        raise VcudaError(f"has no layout '{name}'", path, f"it has {named}")
    parts = layouts[name]
    if not isinstance(parts, list) or not parts:
        raise _wrong(name, path, "is not a list")
    return [_part(part, name, path) for part in parts]


def wanted(parts: Sequence[Part], index: int, pci_id: str) -> Part | None:
    """What one GPU shall have: the last part that covers it, as mig-parted applies them."""
    found = [part for part in parts if part.covers(index, pci_id)]
    return found[-1] if found else None


def _part(tree: Any, name: str, path: str) -> Part:
    if not isinstance(tree, dict) or not set(tree) <= _KEYS:
        raise _wrong(name, path, f"has other keys than {', '.join(sorted(_KEYS))}")
    devices, enabled = tree.get("devices"), tree.get("mig-enabled")
    filter, instances = tree.get("device-filter", []), tree.get("mig-devices") or {}
    filter = [filter] if isinstance(filter, str) else filter
    if devices != ALL and not _are(int, devices):
        raise _wrong(name, path, f"devices are neither '{ALL}' nor a list of indexes")
    if type(enabled) is not bool or not _are(str, filter):
        raise _wrong(name, path, "mig-enabled is not true or false, or device-filter no text")
    if not isinstance(instances, dict) or not _are(int, list(instances.values())):
        raise _wrong(name, path, "mig-devices are no numbers by profile")
    if any(not 0 <= count <= _MOST for count in instances.values()):
        raise _wrong(name, path, f"mig-devices are not from 0 to {_MOST}")
    at = tuple(devices) if isinstance(devices, list) else None
    counts = {str(profile): count for profile, count in instances.items() if count}
    if counts and not enabled:
        raise _wrong(name, path, "has mig-devices without mig-enabled")
    return Part(at, tuple(filter), enabled, counts)


def _are(kind: type, listed: Any) -> bool:
    return isinstance(listed, list) and all(type(each) is kind for each in listed)


def _wrong(name: str, path: str, what: str) -> VcudaError:
    return VcudaError(f"layout '{name}' {what}", path, "see mig-parted's examples/config.yaml")
