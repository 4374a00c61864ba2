"""A plain config.json, as an engine writes it for an ordinary container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CAPABILITIES = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE"]
MASKED = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def plain(
    args: Sequence[str],
    *,
    cgroups_path: str,
    env: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    mounts: Sequence[tuple[str, str]] = (),
    rootfs: str = "rootfs",
) -> dict[str, Any]:
    """`mounts` are (host path, container path), bound read-only."""
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **(env or {})}
    config: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": list(args),
            "env": [f"{key}={value}" for key, value in variables.items()],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES),
            "noNewPrivileges": True,
        },
        "root": {"path": rootfs, "readonly": False},
        "hostname": "vcuda-test",
        "mounts": [*_SYSTEM_MOUNTS, *(_bind(*mount) for mount in mounts)],
        "linux": {
            "cgroupsPath": cgroups_path,
            # Every device is denied, so a container can open only nodes with a rule of their own.
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
        },
    }
    if annotations:
        config["annotations"] = dict(annotations)
    return config


def _bind(source: str, destination: str) -> dict[str, Any]:
    return {
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": ["rbind", "ro"],
    }


def _file_system(destination: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": kind, "options": list(options)}


_SYSTEM_MOUNTS = [
    _file_system("/proc", "proc"),
    _file_system("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
    _file_system("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666"),
    _file_system("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
    _file_system("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
    _file_system("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
]
