"""Find denials by SELinux or AppArmor in this host's logs, of files that a share needs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from vcuda_oci.system.settings_file import Config

from .finding import OK, UNKNOWN, WARNING, Finding

DENIALS = "denials"
CHECKS = (DENIALS,)
AUDIT_LOG = "/var/log/audit/audit.log"
JOURNALS = ("/run/log/journal", "/var/log/journal")
_MOST_BYTES = 4 << 20
_MOST_PATHS = 3
_JOURNAL = [
    "journalctl", "--quiet", "--no-pager", "--output=cat", "--boot", "--lines=20000",
    "_TRANSPORT=kernel", "+", "_TRANSPORT=audit",
]  # fmt: skip
# Source: the kernel's lsm_audit.c and apparmor/audit.c.
_APPARMOR = re.compile(r'apparmor="DENIED".*?\bprofile="([^"]*)" name="([^"]*)"')
_SELINUX = re.compile(r"avc:\s+denied\s.*?\b(?:path|name)=\"([^\"]*)\".*?\bscontext=(\S+)")
_OURS = re.compile(r"vcuda|nvidia|libcuda")


@dataclass
class Denied:
    """module: "AppArmor" or "SELinux". subject: the profile or type that was denied."""

    module: str
    subject: str
    path: str


def examine(settings: Config) -> list[Finding]:
    lines, reasons = read_host()
    return denials([each for line in lines for each in parse(line)], reasons)


def read_host(
    audit_log: str = AUDIT_LOG, journals: Sequence[str] = JOURNALS
) -> tuple[list[str], list[str]]:
    """The logs' lines, and the reason for each log that could not be read."""
    lines, reasons = [], []
    try:
        with open(audit_log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
            lines += file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        pass  # without auditd these lines are in the kernel's log
    except OSError as error:
        reasons.append(f"{audit_log}: {error.strerror}")
    has_journal = any(os.path.isdir(folder) and os.listdir(folder) for folder in journals)
    command = _JOURNAL if has_journal else ["dmesg"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        reasons.append(f"{command[0]}: {error.strerror}")
    else:
        lines += done.stdout.decode(errors="replace").splitlines()
        if done.returncode:
            complaint = done.stderr.decode(errors="replace").strip().splitlines()
            reasons += complaint[-1:] or [f"{command[0]}: exit {done.returncode}"]
    if os.geteuid() != 0:
        reasons.append("journalctl and dmesg may answer root only")
    return lines, reasons


def parse(line: str) -> list[Denied]:
    """The denial in a log's line, of something of ours; [] of other lines, and of a denial that was
    only logged.
    """
    if found := _APPARMOR.search(line):
        denied = Denied("AppArmor", found[1], found[2])
    elif (found := _SELINUX.search(line)) and "permissive=1" not in line:
        parts = found[2].split(":")
        denied = Denied("SELinux", parts[2] if len(parts) > 2 else found[2], found[1])
    else:
        return []
    return [denied] if _OURS.search(denied.path) else []


def denials(denied: Sequence[Denied], reasons: Sequence[str]) -> list[Finding]:
    found = []
    paths_of: dict[tuple[str, str], dict[str, None]] = {}
    for each in denied:
        paths_of.setdefault((each.module, each.subject), {})[each.path] = None
    for (module, subject), named in paths_of.items():
        paths = list(named)
        others = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
        what = f"{module} denies {', '.join(paths[:_MOST_PATHS])}{others} to {subject}"
        found.append(Finding(DENIALS, WARNING, what, hint=_hint(module, subject, paths)))
    if not found and reasons:
        hint = "run it as root, on the host itself"
        return [Finding(DENIALS, UNKNOWN, f"a log cannot be read: {', '.join(reasons)}", hint=hint)]
    return found or [Finding(DENIALS, OK, "none in the logs")]


def _hint(module: str, subject: str, paths: Sequence[str]) -> str:
    if module == "AppArmor":
        return f"allow it in the profile {subject}, or give the container another profile"
    if any("nvidia" in os.path.basename(path) for path in paths):
        return "run 'setsebool -P container_use_devices on'"
    return "label the host's files: 'chcon -R -t container_file_t'"
