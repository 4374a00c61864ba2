"""Check whether the driver can limit containers' cgroups too, where it has such limits."""

from __future__ import annotations

from dataclasses import dataclass

from vcuda_oci.host import driver_scan
from vcuda_oci.system import files
from vcuda_oci.system.settings_file import Config

from .finding import INFO, OK, WARNING, Finding

LIMITS = "driver-limits"
CHECKS = (LIMITS,)
FIRST_DRIVER = 615  # of nvmlDeviceSetMemoryLimits_v1
_CGROUPS = "/sys/fs/cgroup"


@dataclass
class Cgroups:
    """controllers: of the host's cgroup v2; None: it is not mounted there. enabled: those that the
    root enables for its children."""

    controllers: list[str] | None
    enabled: list[str]


def examine(settings: Config) -> list[Finding]:
    version = driver_scan.kernel_version(settings.driver_root.rstrip("/"))
    major = version.partition(".")[0]
    cgroups = Cgroups(_words("cgroup.controllers"), _words("cgroup.subtree_control") or [])
    return [judge(settings.driver_limits, int(major) if major.isdigit() else 0, cgroups)]


def judge(is_wanted: bool, major: int, cgroups: Cgroups) -> Finding:
    """is_wanted: by the setting. major: of the driver's version; 0: unknown."""
    if not is_wanted:
        return Finding(LIMITS, OK, "off by the setting driver-limits: the shim alone holds memory")
    if major < FIRST_DRIVER:
        what = f"the driver has none before {FIRST_DRIVER}: the shim alone holds memory"
        return Finding(LIMITS, OK, what)
    if cgroups.controllers is None:
        what = "the driver can limit a cgroup v2 only, and the host has none: the shim alone holds"
        hint = "boot with systemd.unified_cgroup_hierarchy=1"
        return Finding(LIMITS, INFO, what, _CGROUPS, hint)
    if "dmem" in cgroups.controllers and "dmem" not in cgroups.enabled:
        what = "the kernel has dmem and enables it for no cgroup: the driver refuses every limit"
        hint = f"run 'echo +dmem > {_CGROUPS}/cgroup.subtree_control', and in each cgroup on the "
        hint += "way to the containers; or boot with cgroup_disable=dmem"
        return Finding(LIMITS, WARNING, what, _CGROUPS, hint)
    return Finding(LIMITS, OK, "the driver limits the memory of containers' cgroups")


def _words(name: str) -> list[str] | None:
    try:
        return files.read(f"{_CGROUPS}/{name}").decode().split()
    except OSError:
        return None
