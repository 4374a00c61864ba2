"""The check that refuses unsafe access to what a container can reach: what it finds, and where."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from unit.ground import ROOT

CHECK = ROOT + "/packaging/checks/guest_access.py"
_spec = importlib.util.spec_from_file_location("guest_access", CHECK)
assert _spec and _spec.loader
guest_access = importlib.util.module_from_spec(_spec)
sys.modules["guest_access"] = guest_access
_spec.loader.exec_module(guest_access)


def found(body: str, path: str = "oci/vcuda_oci/any.py") -> list[str]:
    source = "def any(fd, pid, path, folder, flags):\n    " + body.replace("\n", "\n    ")
    return [fault.what.split(";")[0] for fault in guest_access.faults(source, path)]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('os.stat(f"/proc/{pid}/fd/3", flags)', "a path below /proc/<pid>"),
        ('os.listdir(f"/proc/{pid}/fd")', "a path below /proc/<pid>"),
        ('os.stat(f"/proc/{pid}/root")', "a path below /proc/<pid>"),
        ('os.chdir(f"/proc/{pid}/cwd")', "a path below /proc/<pid>"),
        ('open(f"{folder}/map_files/{path}")', "a path below /proc/<pid>"),
        ("os.truncate(path, 0)", "os.truncate by path"),
        ("os.chmod(path, 0o666)", "os.chmod by path"),
        ("os.removexattr(path, 'user.x')", "os.removexattr by path"),
        ("os.open(path, os.O_RDONLY)", "os.open can wait for a lease or a FIFO"),
        ('open(f"{folder}/usage")', "open of a page"),
        ('path = folder + "/limits"\nfiles.read(path)', "files.read of a page"),
        ("fcntl.flock(fd, fcntl.LOCK_EX)", "fcntl.flock can wait for ever"),
        ('open(f"/proc/{pid}/cgroup", "rb")', "a table of the kernel's"),
        ('open(f"{folder}/{pid}/maps")', "a table of the kernel's"),
        ('os.open("mountinfo", os.O_NONBLOCK, dir_fd=fd)', "a table of the kernel's"),
        ('path = "/proc/self/mountinfo"', "a table of the kernel's"),
        (
            'open(f"/proc/{pid}/cmdline", errors="replace")',
            "text of /proc, where a name can end a line",
        ),
        ('files.read("/proc/modules").decode().splitlines()', "splitlines of /proc"),
    ],
)
def test_each_unsafe_form_is_refused_but_in_the_package_that_is_made_for_it(
    body: str, fault: str
) -> None:
    assert found(body) == [fault]
    assert found(body, "oci/vcuda_oci/guest/page_file.py") == []


@pytest.mark.parametrize(
    "body",
    [
        'os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK)',
        'open(f"/proc/{pid}/stat", "rb")',
        'page_file.open_page(folder + "/usage", os.O_RDONLY)',
        "os.ftruncate(fd, 0)",
        "os.fchmod(fd, 0o666)",
        "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        '"""As os.stat of /proc/<pid>/fd/3 does."""',
    ],
)
def test_safe_forms_pass(body: str) -> None:
    assert found(body) == []


def test_the_product_has_no_unsafe_form() -> None:
    folders = [f"{ROOT}/{name}" for name in ("oci", "runtime_hook", "plugin")]
    done = subprocess.run(
        [sys.executable, CHECK, *folders], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert os.path.isdir(folders[0] + "/vcuda_oci/guest")
