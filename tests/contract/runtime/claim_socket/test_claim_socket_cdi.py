"""The claim socket finds the edits of a container with CDI devices without starting Python."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.files import write
from support.gpu.driver_root import DriverRoot
from support.ledger.samples import record
from support.wrapper.installed_wrapper import Installed
from vcuda_oci.container import hook_state
from vcuda_oci.guest import mount_points
from vcuda_oci.ledger import events
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.pages import limits
from vcuda_oci.start import apply_share, cdi_edits, claim_socket

# A runtime's command line is `runc create …`: that of this script is `/bin/sh create …`.
RUNTIME = 'exec <"$3"; "$2" cdi; status=$?; exit $status\n'
RECORDS = '#!/bin/sh\necho "$@" >>{log}; cat >>{log}; exit $(cat {status})\n'


class Created:
    """A container that is being created with /dev/nvidia0 of CDI."""

    def __init__(self, installed: Installed, driver: DriverRoot, folder: str) -> None:
        self.installed, self.folder = installed, folder
        self.ledger = Ledger(folder + "/state")
        installed.configure(state_dir=self.ledger.state_dir, driver_root=driver.path)
        os.makedirs(folder + "/bundle/rootfs")
        self.state = {"ociVersion": "1.0.2", "id": "box", "status": "creating", "pid": os.getpid()}
        self.state["bundle"] = folder + "/bundle"
        self.log, self.status = folder + "/log", write(folder + "/status", "0")
        hook = installed.prefix + "/lib/vcuda/vcuda-procfs-hook"
        write(hook, RECORDS.format(log=self.log, status=self.status), 0o755)

    def start(
        self, *env: str, mounts: Any = (), verb: str = "create", option: str = ""
    ) -> tuple[int, str]:
        """Exit status and stderr of the hook."""
        self.write_config(env, mounts)
        return self.call(verb, option)

    def write_config(self, env: Iterable[str], mounts: Any) -> None:
        spec = {
            "ociVersion": "1.0.2",
            "process": {"args": ["true"], "env": ["PATH=/bin", *env]},
            "root": {"path": "rootfs"},
            "mounts": list(mounts),
            "linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]},
        }
        write(self.folder + "/bundle/config.json", json.dumps(spec))

    def call(self, verb: str = "create", option: str = "") -> tuple[int, str]:
        write(self.folder + "/" + verb, RUNTIME)
        state = write(self.folder + "/state.json", json.dumps(self.state))
        words = ["/bin/sh", verb, option or "box", self.installed.hook, state]
        ran = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
        return ran.returncode, ran.stderr

    def mounted(self) -> list[str]:
        """What the program that covers the container's /proc was called with and read."""
        return Path(self.log).read_text().splitlines() if os.path.exists(self.log) else []

    def expected(self) -> list[str]:
        words = f"{self.folder}/bundle/rootfs {self.ledger.state_dir}/procfs/0 driver"
        return [words, json.dumps(self.state)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """No kernel here has /proc/driver/nvidia, so the folder above it stands for it."""
    found = Installed.counting_python_starts(str(tmp_path_factory.mktemp("prefix")))
    path = Path(found.python_path, "vcuda_oci/model/names.py")
    text = path.read_text().replace('KERNEL_DRIVER = "driver/nvidia"', 'KERNEL_DRIVER = "driver"')
    path.write_text(text)
    return found


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> DriverRoot:
    return DriverRoot(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def created(installed: Installed, driver: DriverRoot, tmp_path: Path) -> Iterator[Created]:
    yield Created(installed, driver, str(tmp_path))
    installed.forget_python_starts()


def test_container_gets_its_proc_folder_without_python(created: Created) -> None:
    with created.installed.claim_server():
        assert created.start() == (0, "")
    assert (created.mounted(), created.installed.python_starts()) == (created.expected(), 0)


def test_python_repeats_a_failed_command_and_reports_it(created: Created) -> None:
    write(created.status, "1")
    with created.installed.claim_server():
        status, stderr = created.start()
    assert (status, created.mounted()[:2]) == (1, created.expected())
    assert stderr.startswith("vcuda-container-hook: ") and stderr.count("\n") == 1
    assert created.installed.python_starts() == 1


def test_refused_image_is_reported_once_by_python(created: Created) -> None:
    with created.installed.claim_server():
        status, stderr = created.start("NVIDIA_REQUIRE_CUDA=cuda>=99.0")
    assert (status, created.mounted(), created.installed.python_starts()) == (1, [], 1)
    assert "NVIDIA_REQUIRE_CUDA" in stderr
    assert [each["kind"] for each in events.read(created.ledger.state_dir)] == ["refused"]


@pytest.mark.parametrize(
    ("files", "starts"),
    [([], 0), (["lib64/libcuda.so.1"], 0), (["lib/libcuda.so.1"], 1)],
    ids=["none", "mount point", "own"],
)
def test_only_an_image_with_its_own_libcuda_needs_python(
    created: Created, files: list[str], starts: int
) -> None:
    for file in files:
        write(f"{created.folder}/bundle/rootfs/usr/{file}", "")
    allocation = record(names.CLAIM_PREFIX + "uid")
    with created.ledger:
        created.ledger.write(allocation, limits.page_of(allocation))
    page = f"{created.ledger.containers}/{allocation.id}/limits"
    shim = created.installed.prefix + "/lib/vcuda/libvcuda.so.1"
    mounts = {names.GUEST_LIMITS: page, "/usr/lib64/libcuda.so.1": shim}
    listed = [{"destination": place, "source": source} for place, source in mounts.items()]
    with created.installed.claim_server():
        created.start(mounts=listed)
    assert (len(created.mounted()) // 2, created.installed.python_starts()) == (1 - starts, starts)


@pytest.mark.parametrize(("verb", "option"), [("run", "--keep"), ("delete", "box")])
def test_kept_containers_and_unknown_callers_are_pythons(
    created: Created, verb: str, option: str
) -> None:
    with created.installed.claim_server():
        created.start(verb=verb, option=option)
    assert created.installed.python_starts() == 1


@pytest.fixture
def overlay(created: Created) -> Iterator[str]:
    """The container's root on an overlay of its own, as engines have it."""
    root, folders = created.folder + "/bundle/rootfs", []
    for name in ("lowerdir", "upperdir", "workdir"):
        os.mkdir(f"{created.folder}/{name}")
        folders.append(f"{name}={created.folder}/{name}")
    words = ["mount", "-t", "overlay", "overlay", "-o", ",".join(folders), root]
    subprocess.run(words, check=True)
    yield root
    subprocess.run(["umount", root], check=True)


def test_mount_points_of_an_ended_container_are_removed_without_python(
    created: Created, overlay: str
) -> None:
    own = write(overlay + "/usr/own", "")
    created.write_config([], [{"destination": names.GUEST_LIMITS, "source": "/x"}])
    place = write(overlay + names.GUEST_LIMITS, "")
    created.state["status"] = "stopped"
    with created.installed.claim_server():
        assert created.call() == (0, "")
    assert (os.path.exists(place), os.path.exists(own)) == (False, True)
    assert (created.mounted(), created.installed.python_starts()) == ([], 0)


def test_late_answer_removes_no_mount_point_of_a_container_that_runs_again(
    created: Created, overlay: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    created.write_config([], [{"destination": names.GUEST_LIMITS, "source": "/x"}])
    place = write(overlay + names.GUEST_LIMITS, "")
    state = json.dumps({**created.state, "status": "stopped"})
    hook, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    hook.send(b"\0".join(map(str.encode, (created.installed.settings, "", "cdi", state, ""))))
    real = apply_share.host_of

    def slowly(settings: Any) -> Any:
        hook.close()  # the launcher waits no longer
        return real(settings)

    monkeypatch.setattr(apply_share, "host_of", slowly)
    monkeypatch.setattr(mount_points, "_PROGRAM", created.installed.hook)
    with worker:
        assert claim_socket._answer(worker)[:1] == claim_socket.DONE
    assert os.path.exists(place)


@pytest.mark.parametrize("part", ["a\0b", ""])
def test_command_whose_words_would_be_others_is_not_answered(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["/bin/hook", part, "driver/nvidia"]
    monkeypatch.setattr(cdi_edits, "hook_without_mounts", lambda *_: command)
    state = hook_state.State("box", "creating", 1, "/b", {})
    assert claim_socket._of_cdi_hook("/c", state, 1) == claim_socket.CLOSED


@pytest.mark.parametrize("count", [7, 8])
def test_hook_runs_no_part_of_a_longer_command(created: Created, count: int) -> None:
    created.write_config([], [])
    script = write(created.folder + "/script", f"#!/bin/sh\necho $# >{created.folder}/ran\n", 0o755)
    path = f"{created.ledger.state_dir}/{claim_socket.NAME}"
    os.makedirs(created.ledger.state_dir)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(claim_socket.MOST_BYTES)
                connection.send(b"\0".join([b"+", b"", script.encode(), *[b"x"] * (count - 1)]))

        thread = threading.Thread(target=answer)
        thread.start()
        created.call()
        thread.join(30)
    assert (os.path.exists(created.folder + "/ran"), created.installed.python_starts()) == (
        (True, 0) if count == 7 else (False, 1)
    )
