"""A container as its config.json describes it, read once."""

from __future__ import annotations

import os

from ..model.record import Record
from . import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Mount(Record):
    """A mount of config.json. source, destination: "" if the entry has none."""

    def __init__(self, source: str, destination: str, options: list[Any]) -> None:
        self.source, self.destination, self.options = source, destination, options


class Container(Record):
    """A container before its creation.

    spec: the parsed config.json, which the edits are applied to. bundle: "": unknown. annotations:
    as identity.proven returns them. environment: the process's variables. rootfs: the image's root
    on the host; "": not in the spec. devices: paths of device nodes. device_rules: in their order.
    """

    def __init__(
        self,
        id: str,
        bundle: str,
        spec: Any,
        annotations: dict[str, str],
        environment: dict[str, str],
        mounts: list[Mount],
        rootfs: str,
        devices: list[str],
        device_rules: list[dict[str, Any]],
    ) -> None:
        self.id, self.bundle, self.spec = id, bundle, spec
        self.annotations, self.environment = annotations, environment
        self.mounts, self.rootfs = mounts, rootfs
        self.devices, self.device_rules = devices, device_rules

    @property
    def is_pod(self) -> bool:
        """Whether the engine says that this container belongs to a pod."""
        return identity.is_pod(self.annotations)

    @property
    def is_sandbox(self) -> bool:
        return identity.is_sandbox(self.annotations)

    @property
    def sandbox_file(self) -> str:
        """The file that holds the pod's sandbox, as in `Owner`; "": a process does.

        CRI-O by default (drop_infra_ctr) runs nothing in a sandbox. It pins the pod's namespaces,
        the UTS namespace of each pod, until the sandbox is stopped. Source: CRI-O
        server/sandbox_run_linux.go, sandbox_stop_linux.go; seen with 1.36.3.
        """
        if not identity.is_from_crio(self.annotations):
            return ""
        for each in _objects(_child(self.spec, "linux"), "namespaces"):
            path = _text(each, "path")
            # A process's own namespace is not pinned.
            if each.get("type") == "uts" and path.split("/")[1:2] not in ([], ["proc"]):
                # The agent's pod sees the host's /run.
                return path[len("/var") :] if path.startswith("/var/run/") else path
        return ""

    @property
    def sees_every_device(self) -> bool:
        """Whether the device rules allow all devices, as with --privileged, so that no share could
        be enforced.

        The last such rule decides. Source: runtime-spec config-linux.md, "Allowed Device list".
        """
        everything = False
        for rule in self.device_rules:
            if rule.get("major") in (None, -1):
                kind, allow, access = rule.get("type") or "a", rule.get("allow"), rule.get("access")
                # Engines allow mknod ("m") in every container; it does not allow opening a device.
                if allow is True and kind in ("a", "c") and (not access or "r" in access):
                    everything = True
                elif allow is not True and kind == "a":
                    everything = False
        return everything


def container_of(spec: Any, id: str = "", bundle: str = "") -> Container:
    """Read a container from the parsed config.json.

    Never raises: the low-level runtime reports a malformed config.json.
    """
    linux = _child(spec, "linux")
    root = _child(spec, "root").get("path")
    return Container(
        id,
        bundle,
        spec,
        annotations_of(spec),
        _environment(_child(spec, "process")),
        [
            Mount(_text(each, "source"), _text(each, "destination"), _list(each, "options"))
            for each in _objects(spec, "mounts")
        ],
        os.path.join(bundle, root) if isinstance(root, str) else "",
        [path for each in _objects(linux, "devices") if (path := _text(each, "path"))],
        _objects(_child(linux, "resources"), "devices"),
    )


def annotations_of(spec: Any) -> dict[str, str]:
    """The annotations with text values, as identity.proven returns them."""
    found = {key: value for key, value in _child(spec, "annotations").items() if type(value) is str}
    return identity.proven(found, _child(spec, "linux").get("cgroupsPath"))


def _environment(process: Mapping[str, Any]) -> dict[str, str]:
    """The variables by name; the last value of a repeated name counts, as in every engine."""
    found: dict[str, str] = {}
    for entry in _list(process, "env"):
        if isinstance(entry, str):
            key, _, value = entry.partition("=")
            found[key] = value
    return found


def _child(parent: Any, key: str) -> dict[str, Any]:
    child = parent.get(key) if isinstance(parent, dict) else None
    return child if isinstance(child, dict) else {}


def _list(parent: Any, key: str) -> list[Any]:
    items = parent.get(key) if isinstance(parent, dict) else None
    return items if isinstance(items, list) else []


def _objects(parent: Any, key: str) -> list[dict[str, Any]]:
    return [item for item in _list(parent, key) if isinstance(item, dict)]


def _text(parent: Mapping[str, Any], key: str) -> str:
    value = parent.get(key)
    return value if isinstance(value, str) else ""
