"""Changes that the tests make to a host stay in the private host, even after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from support.files import ROOT
from support.host import cgroups, own_run
from support.host.private_host import PrivateHost
from support.waiting import until

pytestmark = pytest.mark.usefixtures("files")
TESTS = ROOT + "/tests"
ABANDON = """
from support.host import cgroups
from support.host.private_host import PrivateHost
host = PrivateHost()
group = cgroups.hierarchies()[0] + host.cgroup_parent
host.run(["mkdir", "-p", group])
host.daemon(["setsid", "sleep", "1000"], "log")
print(host.pid, host.folder, host.cgroup_parent, flush=True)
input()
"""


def test_writes_to_engine_folders_stay_private() -> None:
    host = PrivateHost()
    try:
        host.check(
            ["touch", "/etc/vcuda-it", "/run/vcuda-it", "/var/vcuda-it", "/dev/shm/vcuda-it"]
        )
        host.check(["ls", "/etc/vcuda-it", "/run/vcuda-it", "/var/vcuda-it", "/dev/shm/vcuda-it"])
        host.check(["mount", "-t", "tmpfs", "vcuda-it", "/mnt"])
        host.check(["test", "-e", "/etc/passwd"])
    finally:
        host.close()
    for folder in ("/etc", "/run", "/var", "/dev/shm"):
        assert not os.path.exists(os.path.join(folder, "vcuda-it"))
    with open("/proc/self/mounts") as mounts:
        assert "vcuda-it" not in mounts.read()


def test_a_killed_test_process_takes_its_host_along_and_the_next_one_sweeps() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ABANDON],
        env={**os.environ, "PYTHONPATH": TESTS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pid, folder, group = process.stdout.readline().split()
        assert os.path.exists(f"/proc/{pid}")
        assert os.path.exists(folder)
        assert cgroups.named(group[1:]) == {group[1:]}
        process.send_signal(signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the private host")
    # A run beside this one may have swept it by now, or be at it.
    until(lambda: _swept(folder), "the sweep")
    assert cgroups.named(group[1:]) == set()


def test_a_sweep_spares_a_run_in_a_process_namespace_of_its_own() -> None:
    """No process id says whether it lives: there the same ids are other processes."""
    with subprocess.Popen(
        [
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            sys.executable,
            "-c",
            ABANDON,
        ],
        env={**os.environ, "PYTHONPATH": TESTS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        _, folder, group = process.stdout.readline().split()
        own_run.sweep()
        assert os.path.exists(folder)
        assert cgroups.named(group[1:]) == {group[1:]}
        process.kill()
    until(lambda: _swept(folder), "the end of the run, and its sweep")
    assert cgroups.named(group[1:]) == set()


def _swept(folder: str) -> bool:
    own_run.sweep()
    return not os.path.exists(folder)


def test_the_exit_code_of_a_detached_process_is_known() -> None:
    host = PrivateHost()
    try:
        pid = int(host.check(["sh", "-c", "(sleep 0.05; exit 9) >/dev/null & echo $!"]))
        assert host.exit_code_of_orphan(pid) == 9
        assert host.exit_code_of_orphan(pid) == 9
    finally:
        host.close()
