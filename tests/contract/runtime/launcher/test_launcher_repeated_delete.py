"""The launcher skips the runtime when a shim deletes a container a second time by force."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.files import write
from support.ledger.samples import record
from support.wrapper.installed_wrapper import Installed
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.pages import limits

# The command lines of containerd's and Docker's shims.
LINES = [
    "--root {root} --log {folder}/log --log-format json delete --force gone",
    "--root={root} --log {folder}/log --log-format=json --systemd-cgroup delete --force gone",
    "--root {root} delete --force A-0_+.9",
]


class Host:
    """root: where a runtime of the name `name` has its containers, of which `there` is one."""

    def __init__(self, installed: Installed, folder: str, name: str = "runc") -> None:
        self.installed, self.folder, self.root = installed, folder, folder + "/root"
        self.ledger = Ledger(folder + "/state")
        write(self.root + "/there/state.json", "{}")
        self.runtime = f"{folder}/{name}"
        shutil.copy(installed.runtime.path, self.runtime)
        installed.configure(runtime=self.runtime, state_dir=self.ledger.state_dir)

    def starts_for(self, line: str) -> bool:
        """Whether the runtime is started; the launcher exits with 0 and prints nothing."""
        words = line.format(root=self.root, folder=self.folder).split()
        ran = self.installed.call(*words, cwd=self.folder)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
        called = [name for name in os.listdir(self.folder) if name.startswith("called.")]
        for name in called:
            os.unlink(f"{self.folder}/{name}")
        return bool(called)


@pytest.fixture
def new_host(installed: Installed, tmp_path: Any) -> Iterator[Callable[..., Host]]:
    yield lambda name="runc": Host(installed, str(tmp_path), name)


@pytest.mark.parametrize("name", ["runc", "crun"])
@pytest.mark.parametrize("line", LINES)
def test_forced_delete_of_a_removed_container_skips_the_runtime(
    new_host: Callable[..., Host], name: str, line: str
) -> None:
    assert not new_host(name).starts_for(line)


@pytest.mark.parametrize("name", ["runc", "crun"])
@pytest.mark.parametrize("line", LINES)
def test_the_error_equals_the_runtimes(name: str, line: str, tmp_path: Any) -> None:
    root = f"{tmp_path}/root"
    write(root + "/there/state.json", "{}")
    words = line.format(root=root, folder=tmp_path).split()
    ran = subprocess.run([name, *words], capture_output=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert os.listdir(root) == ["there"]
    assert not os.path.exists(f"{tmp_path}/log") or os.path.getsize(f"{tmp_path}/log") == 0


@pytest.mark.parametrize(
    "line",
    [
        "--root {root} delete --force there",  # even where its folder holds nothing of use
        "--root {root} delete gone",  # that is an error
        "--root {root} delete -f gone",
        "--root {root} delete --force gone gone-too",
        "--root {root} delete --force -- gone",
        "--root {root} delete --force",
        "--root {root} delete --force .gone",
        "--root {root} delete --force ../root/gone",
        "--root {root} delete --force a:b",  # which runc calls no id
        "--root {root} --debug delete --force gone",  # with debug output
        "--root {root} --log-level debug delete --force gone",
        "--root {root} --rootless true delete --force gone",
        "--root {root}/there/state.json delete --force gone",
        "--root {folder}/none delete --force gone",
        "--root root delete --force gone",
        "--root= delete --force gone",
        "delete --force gone",
        "--root {root} kill --force gone",
    ],
)
def test_any_other_container_is_asked_of_the_runtime(
    new_host: Callable[..., Host], line: str
) -> None:
    assert new_host().starts_for(line)


@pytest.mark.parametrize("name", ["kata-runtime", "runc.real", "nvidia-container-runtime"])
def test_another_runtime_is_always_asked(new_host: Callable[..., Host], name: str) -> None:
    assert new_host(name).starts_for(LINES[0])


def test_share_of_an_ended_container_is_released_after_asking_its_runtime(
    new_host: Callable[..., Host],
) -> None:
    """The first `delete` did not go through the launcher, only this one does."""
    host = new_host()
    allocation = record("gone")
    allocation.runtime = [host.runtime, "--root", host.root]
    with host.ledger:
        host.ledger.write(allocation, limits.page_of(allocation))
    assert host.starts_for(LINES[0])
    assert host.ledger.get("gone") is None
    assert not host.starts_for(LINES[0])
