"""Check whether the kernel can deny devices to a container by its cgroup."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from vcuda_oci.system.settings_file import Config

from ..hooks import device_program, device_rules
from .finding import ERROR, OK, UNKNOWN, Finding

RULES = "device-rules"
CHECKS = (RULES,)


@dataclass
class Cgroups:
    """version: of the hierarchy that checks devices; 0: none does.

    refused: errno with which the kernel refuses a device program of version 2; 0: it loads one.
    """

    version: int
    refused: int = 0


def examine(settings: Config) -> list[Finding]:
    return [rules(read_host(), os.geteuid() == 0)]


def read_host() -> Cgroups:
    try:
        _, _, is_v2 = device_rules.of_this_process()
    except FileNotFoundError:
        return Cgroups(0)
    if not is_v2:
        return Cgroups(1)
    try:
        device_program.try_to_load()
    except OSError as error:
        return Cgroups(2, error.errno or errno.EIO)
    return Cgroups(2)


def rules(cgroups: Cgroups, is_root: bool) -> Finding:
    if cgroups.version == 0:
        what = "no cgroup judges devices: none can be denied to a container"
        hint = "mount cgroup v1's devices controller, or boot with cgroup v2"
        return Finding(RULES, ERROR, what, "/sys/fs/cgroup", hint)
    if cgroups.version == 1:
        return Finding(RULES, OK, "cgroup v1 with its devices controller")
    if not cgroups.refused:
        return Finding(RULES, OK, "cgroup v2, and the kernel loads device programs")
    reason = os.strerror(cgroups.refused)
    if cgroups.refused in (errno.EPERM, errno.EACCES) and not is_root:
        return Finding(RULES, UNKNOWN, f"not checked: {reason}", hint="run it as root")
    what = f"cgroup v2, and the kernel loads no device program: {reason}"
    hint = "boot a kernel with CONFIG_CGROUP_BPF, not locked down, or with cgroup v1"
    return Finding(RULES, ERROR, what, "bpf(2)", hint)
