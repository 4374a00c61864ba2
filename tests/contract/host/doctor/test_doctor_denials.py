"""`vcuda doctor` on the host's logs of denials."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.files import script, write
from vcuda_hook.doctor import denials
from vcuda_hook.doctor.finding import OK, UNKNOWN, WARNING, Finding
from vcuda_hook.live import in_time


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Where any user comes: the checkout, and pytest's folder in it, may be root's alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


AS_ROOT_ON_THE_HOST = "run it as root, on the host itself"


# What two kernels, and auditd, have written.
APPARMOR = (
    'audit: type=1400 audit(1721650000.123:88): apparmor="DENIED" operation="open" class="file" '
    'profile="docker-default" name="/usr/local/vcuda/limits" pid=4242 comm="python3" '
    'requested_mask="r" denied_mask="r" fsuid=0 ouid=0'
)
APPARMOR_NODE = APPARMOR.replace("/usr/local/vcuda/limits", "/dev/nvidia-uvm")
SELINUX = (
    "type=AVC msg=audit(1721650000.123:412): avc:  denied  { read write } for  pid=4242 "
    'comm="python3" path="/dev/nvidia0" dev="devtmpfs" ino=512 '
    "scontext=system_u:system_r:container_t:s0:c12,c13 "
    "tcontext=system_u:object_r:xserver_misc_device_t:s0 tclass=chr_file permissive=0"
)
SELINUX_FILE = SELINUX.replace("/dev/nvidia0", "/usr/local/vcuda/limits").replace(
    "chr_file", "file"
)
NOT_OURS = (
    APPARMOR.replace("/usr/local/vcuda/limits", "/etc/shadow"),
    APPARMOR.replace("DENIED", "ALLOWED"),
    SELINUX.replace("permissive=0", "permissive=1"),
    SELINUX.replace("/dev/nvidia0", "/etc/shadow"),
    SELINUX.replace("denied", "granted"),
    "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
)
APPARMOR_MEND = "allow it in the profile docker-default, or give the container another profile"
BOOLEAN = "run 'setsebool -P container_use_devices on'"
LABEL = "label the host's files: 'chcon -R -t container_file_t'"


def found_in(tmp_path: Any, audit_log: list[str] | None) -> list[Finding]:
    """Of this audit.log, and of the kernel's log that a `dmesg` on PATH prints."""
    path = f"{tmp_path}/audit.log"
    if audit_log is not None:
        write(path, "\n".join(audit_log) + "\n")
    lines, reasons = denials.read_host(path, [f"{tmp_path}/no-journal"])
    return denials.denials([d for line in lines for d in denials.parse(line)], reasons)


def kernel_log(tmp_path: Any, monkeypatch: Any, *lines: str, program: str = "dmesg") -> None:
    write(f"{tmp_path}/lines", "".join(line + "\n" for line in lines))
    script(f"{tmp_path}/bin/{program}", f"#!/bin/sh\nexec /bin/cat {tmp_path}/lines\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")


@pytest.mark.parametrize(
    ("lines", "what", "hint"),
    [
        (
            [APPARMOR, APPARMOR, APPARMOR_NODE],
            "AppArmor denies /usr/local/vcuda/limits, /dev/nvidia-uvm to docker-default",
            APPARMOR_MEND,
        ),
        ([SELINUX], "SELinux denies /dev/nvidia0 to container_t", BOOLEAN),
        ([SELINUX_FILE], "SELinux denies /usr/local/vcuda/limits to container_t", LABEL),
        (
            [SELINUX.replace("nvidia0", f"nvidia{minor}") for minor in range(8)],
            "SELinux denies /dev/nvidia0, /dev/nvidia1, /dev/nvidia2 and 5 more to container_t",
            BOOLEAN,
        ),
    ],
    ids=["AppArmor", "SELinux, a node", "SELinux, a file", "many"],
)
def test_denials_are_found_in_the_kernels_log_and_in_auditds(
    tmp_path: Any, monkeypatch: Any, lines: list[str], what: str, hint: str
) -> None:
    expected = [Finding("denials", WARNING, what, hint=hint)]
    kernel_log(tmp_path, monkeypatch, *NOT_OURS)
    assert found_in(tmp_path, [*NOT_OURS, *lines]) == expected
    kernel_log(tmp_path, monkeypatch, *lines)
    assert found_in(tmp_path, []) == expected


def test_denials_are_found_in_the_journal(tmp_path: Any, monkeypatch: Any) -> None:
    kernel_log(tmp_path, monkeypatch, SELINUX, program="journalctl")
    write(f"{tmp_path}/journal/0123/system.journal", "")
    lines, reasons = denials.read_host(f"{tmp_path}/no-audit.log", [f"{tmp_path}/journal"])
    assert (lines, reasons) == ([SELINUX], [])


def test_logs_without_a_denial_of_ours_are_well(tmp_path: Any, monkeypatch: Any) -> None:
    kernel_log(tmp_path, monkeypatch, *NOT_OURS)
    well = [Finding("denials", OK, "none in the logs")]
    assert found_in(tmp_path, [*NOT_OURS]) == well
    os.unlink(f"{tmp_path}/audit.log")
    assert found_in(tmp_path, None) == well


def test_a_log_that_cannot_be_read_is_no_log_without_denials(
    tmp_path: Any, monkeypatch: Any
) -> None:
    complaint = "dmesg: read kernel buffer failed: Operation not permitted"
    script(f"{tmp_path}/bin/dmesg", f"#!/bin/sh\necho '{complaint}' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert found_in(tmp_path, []) == [
        Finding("denials", UNKNOWN, f"a log cannot be read: {complaint}", hint=AS_ROOT_ON_THE_HOST)
    ]
    os.unlink(f"{tmp_path}/bin/dmesg")
    what = "a log cannot be read: dmesg: No such file or directory"
    assert found_in(tmp_path, []) == [Finding("denials", UNKNOWN, what, hint=AS_ROOT_ON_THE_HOST)]


def test_logs_that_show_only_their_own_lines_to_others_than_root_prove_nothing(
    tmp_path: Any, monkeypatch: Any
) -> None:
    kernel_log(tmp_path, monkeypatch)

    def as_nobody() -> list[dict[str, str]]:
        os.setuid(65534)
        return [found.__dict__ for found in found_in(tmp_path, None)]

    ((found,),) = in_time.ask([as_nobody], 30)
    assert Finding(**found) == Finding(
        "denials",
        UNKNOWN,
        "a log cannot be read: journalctl and dmesg may answer root only",
        hint=AS_ROOT_ON_THE_HOST,
    )
