"""The ``config.json`` of `vcuda run`'s container."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from vcuda_oci.container import bundle
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The capabilities of a container by default; the engines agree on these fourteen.
CAPABILITIES = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
]
# Files that describe or control the host.
MASKED = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def plain(
    container_id: str,
    cgroup: str,
    root: str,
    args: Sequence[str],
    env: Sequence[str],
    volumes: Sequence[tuple[str, str, bool]],
    cwd: str,
    terminal: bool,
) -> dict[str, Any]:
    """An ordinary container on the host's network.

    env: "NAME=value". volumes: (host folder, container folder, read-only). Devices are denied by
    default; the runtime itself allows /dev/null and the like. Source: runtime-spec config.md,
    config-linux.md "Default Devices".
    """
    term = ["TERM=" + os.environ.get("TERM", "xterm")] if terminal else []
    spec: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": terminal,
            "user": {"uid": 0, "gid": 0},
            "args": list(args),
            "env": [PATH, "HOME=/root", *term, *env],
            "cwd": cwd,
            "capabilities": {
                kind: list(CAPABILITIES) for kind in ("bounding", "effective", "permitted")
            },
            "noNewPrivileges": True,
        },
        "root": {"path": root, "readonly": False},
        "hostname": container_id,
        "mounts": [*_system_mounts(), *(_volume(*volume) for volume in volumes)],
        "linux": {
            "cgroupsPath": cgroup,
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": kind} for kind in ("mount", "pid", "ipc", "uts")],
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
        },
    }
    if is_pure_cgroup_v2():
        spec["linux"]["namespaces"].append({"type": "cgroup"})
        spec["mounts"].append(
            _file_system("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "ro")
        )
    return spec


def from_bundle(
    folder: str,
    root: str,
    args: Sequence[str],
    env: Sequence[str],
    volumes: Sequence[tuple[str, str, bool]],
    terminal: bool,
) -> tuple[dict[str, Any], str]:
    """The bundle's config.json with the command line's additions, and its root file system.

    The command line's request replaces the bundle's. Raises VcudaError: not a bundle.
    """
    path = folder + "/config.json"
    spec = bundle.load_config(path)
    lower = _expect(_expect(spec, path).get("root"), path).get("path")
    process = _expect(spec.get("process"), path)
    spec["root"]["path"] = root
    process["terminal"] = terminal
    if args:
        process["args"] = list(args)
    process["env"] = [*(process.get("env") or []), *env]
    mounts = spec["mounts"] = spec.get("mounts") or []
    for mount in mounts:
        # Paths are relative to the bundle, and this config.json is elsewhere.
        if isinstance(mount, dict) and "bind" in str(mount.get("options")):
            mount["source"] = os.path.join(folder, str(mount.get("source")))
    mounts += [_volume(*volume) for volume in volumes]
    annotations = spec.get("annotations") or {}
    spec["annotations"] = {
        key: value
        for key, value in annotations.items()
        if not key.startswith(names.ANNOTATION_PREFIX)
    }
    return spec, os.path.join(folder, str(lower))


def ask(spec: dict[str, Any], words: Mapping[str, str]) -> None:
    """Write the request into the spec, as an engine would."""
    annotations = spec.setdefault("annotations", {})
    annotations.update({names.ANNOTATION_PREFIX + key: value for key, value in words.items()})


def cgroup_of(container_id: str, claimant: Sequence[int], parent: str) -> str:
    """The cgroup of a container; no later container of the same name gets the same one.

    claimant: pid and start time, in ticks since boot, of its `vcuda run`. parent: the cgroup's
    parent, by its path in the hierarchy; "": the root.
    """
    pid, started = claimant
    return f"{parent}/vcuda-{container_id}.{pid}.{started}"


def is_pure_cgroup_v2() -> bool:
    return os.path.exists("/sys/fs/cgroup/cgroup.controllers")


def _expect(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise VcudaError("is not a container's config.json", path, "let 'runc spec' write one")
    return value


def _volume(source: str, destination: str, read_only: bool) -> dict[str, Any]:
    options = ["rbind", "rprivate", "ro" if read_only else "rw"]
    return {"destination": destination, "type": "bind", "source": source, "options": options}


def _file_system(destination: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": kind, "options": list(options)}


def _system_mounts() -> list[dict[str, Any]]:
    quiet = ("nosuid", "noexec", "nodev")
    terminals = ("newinstance", "ptmxmode=0666", "mode=0620", "gid=5")
    return [
        _file_system("/proc", "proc", *quiet),
        _file_system("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _file_system("/dev/pts", "devpts", "nosuid", "noexec", *terminals),
        _file_system("/dev/shm", "tmpfs", *quiet, "mode=1777", "size=65536k"),  # noqa: S108
        _file_system("/dev/mqueue", "mqueue", *quiet),
        _file_system("/sys", "sysfs", *quiet, "ro"),
        # The host's sockets are in /run: a container on the host's files must not find them.
        _file_system("/run", "tmpfs", "nosuid", "nodev", "mode=755", "size=65536k"),
    ]
