"""`vcuda doctor` on the state folder: file system, records, claim socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.files import ROOT, write
from support.ledger.samples import record
from support.wrapper.fake_runtime import FakeRuntime
from support.wrapper.installed_wrapper import Installed
from vcuda_hook.doctor import containers, state
from vcuda_hook.doctor.finding import ERROR, INFO, OK, UNKNOWN, WARNING, Finding
from vcuda_hook.live import container_processes
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.pages import limits
from vcuda_oci.system import settings_file

# Prints what is found of the folder argv[1], in a mount namespace where a script may mount first.
LOOK = f"""
import json, sys
sys.path[:0] = ["{ROOT}/oci", "{ROOT}/runtime_hook"]
from vcuda_hook.doctor import state as doctor_state
print(json.dumps(doctor_state.state_folder(doctor_state.read_host(sys.argv[1])).__dict__))
"""
OPEN_IT = "run 'vcuda serve' as a service for faster starts"


def mounted(folder: str, options: str, user: int = 0) -> Finding:
    """The findings about `folder`/state on a tmpfs with these options."""
    mount = f'mount -t tmpfs -o {options} none "$1" && mkdir -p "$1/state"'
    if "ro" in options.split(","):
        mount = 'mount -t tmpfs none "$1" && mkdir "$1/state" && mount -o remount,ro "$1"'
    # A user without root reaches the checkout wherever that lies, and may write no more than
    # others.
    rights = f"--reuid {user} --inh-caps +dac_read_search --ambient-caps +dac_read_search"
    line = f'{mount} && exec setpriv {rights} "$2" -I -S -c "$3" "$1/state"'
    answer = subprocess.run(
        ["unshare", "-m", "sh", "-c", line, "sh", folder, sys.executable, LOOK],
        stdout=subprocess.PIPE,
        check=True,
    )
    return Finding(**json.loads(answer.stdout))


@pytest.fixture
def place(tmp_path: Any) -> str:
    """A folder that anyone can reach."""
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        os.chmod(folder, 0o755)
    os.mkdir(f"{tmp_path}/place")
    return f"{tmp_path}/place"


@pytest.mark.parametrize("below", ["", "/run/vcuda"], ids=["mounted", "not there yet"])
def test_a_shared_tmpfs_is_reported_and_an_own_one_is_not(place: str, below: str) -> None:
    line = 'mount -t tmpfs -o mode=755,nosuid,nodev,noexec none "$1"'
    line += ' && exec "$2" -I -S -c "$3" "$1$4"'
    answer = subprocess.run(
        ["unshare", "-m", "sh", "-c", line, "sh", place, sys.executable, LOOK, below],
        stdout=subprocess.PIPE,
        check=True,
    )
    what = "shares its tmpfs with others: a container without a memory limit can fill it"
    hint = "mount a tmpfs there while no container has a share, as run-vcuda.mount does"
    assert Finding(**json.loads(answer.stdout)) == (
        Finding("state-dir", WARNING, what, place + below, hint)
        if below
        else Finding("state-dir", OK, "a tmpfs of its own", place)
    )
    assert os.listdir(place) == []


def test_a_tmpfs_where_containers_could_leave_setuid_programs_is_found(place: str) -> None:
    line = 'mount -t tmpfs -o mode=755,nodev none "$1" && exec "$2" -I -S -c "$3" "$1"'
    words = ["unshare", "-m", "sh", "-c", line, "sh", place, sys.executable, LOOK]
    answer = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    what = "is mounted without nosuid,noexec: containers write files there"
    hint = "mount it with nosuid,nodev,noexec, as run-vcuda.mount does"
    assert Finding(**json.loads(answer.stdout)) == Finding("state-dir", WARNING, what, place, hint)


@pytest.mark.parametrize(
    ("options", "user", "severity", "what", "hint"),
    [
        (
            "size=128k",
            0,
            ERROR,
            "is full: no room for another container's pages",
            "free space there",
        ),
        (
            "nr_inodes=6",
            0,
            ERROR,
            "is full: no room for another container's pages",
            "free space there",
        ),
        ("ro", 0, ERROR, "cannot be written", "mount it writable, or set state-dir"),
        (
            "size=16m",
            65534,
            UNKNOWN,
            "whether root can write it is not known",
            "run it as root",
        ),
    ],
    ids=["no space", "no inodes", "read-only", "not root"],
)
def test_a_folder_that_takes_no_record_is_found(
    place: str, options: str, user: int, severity: str, what: str, hint: str
) -> None:
    assert mounted(place, options, user) == Finding(
        "state-dir", severity, what, place + "/state", hint
    )


def found_of(path: str) -> Finding:
    return state.state_folder(state.read_host(path))


def test_records_that_outlive_a_reboot_are_found(tmp_path: Any) -> None:
    write(
        f"{tmp_path}/mountinfo",
        f"2 1 0:5 / {str(tmp_path).replace('t', chr(92) + '164', 1)} rw shared:1 - xfs none rw\n"
        f"3 1 0:6 / {tmp_path}x rw - tmpfs none rw\n"
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n",
    )
    place = state.read_host(str(tmp_path), str(tmp_path))
    assert state.state_folder(place) == Finding(
        "state-dir",
        WARNING,
        "is on xfs: records outlive a reboot that ends every container",
        str(tmp_path),
        "mount a tmpfs there, as run-vcuda.mount does, or set state-dir to a folder of one",
    )


def test_a_folder_that_others_may_write_is_found(tmp_path: Any) -> None:
    os.chmod(tmp_path, 0o777)
    assert found_of(str(tmp_path)) == Finding(
        "state-dir",
        ERROR,
        "other users may write it",
        str(tmp_path),
        "run 'chmod 755' and 'chown root'",
    )


def test_a_file_in_the_folders_place_is_found(tmp_path: Any) -> None:
    path = write(f"{tmp_path}/state", "")
    assert found_of(path) == Finding(
        "state-dir", ERROR, "is not a folder", path, "remove it, or set state-dir in config.toml"
    )


@pytest.fixture
def ledger(tmp_path: Any) -> Ledger:
    """With one container that lives."""
    ledger = Ledger(f"{tmp_path}/state")
    runtime = FakeRuntime(f"{tmp_path}/bin")
    runtime.set_state("box", "running")
    with ledger:
        box = record("box", runtime=runtime.words)
        ledger.write(box, limits.page_of(box))
    return ledger


def settings_of(ledger: Ledger) -> settings_file.Config:
    return settings_file.parse(f'state-dir = "{ledger.state_dir}"', "config.toml")


def test_a_broken_record_is_found(ledger: Ledger) -> None:
    assert state.records(ledger.state_dir) == [Finding("records", OK, "1 whole, none broken")]
    path = write(ledger.allocations + "/torn.json", '{"version": 1, "id": "to')
    (found,) = state.records(ledger.state_dir)
    assert (found.severity, found.where, found.hint) == (
        ERROR,
        path,
        "run 'vcuda release torn' if its container has ended",
    )
    assert found.what.startswith("is not a whole record (")


def test_records_that_cannot_be_read_are_no_sound_records(ledger: Ledger) -> None:
    os.rename(ledger.allocations, ledger.allocations + ".away")
    write(ledger.allocations, "")
    assert state.records(ledger.state_dir) == [
        Finding(
            "records",
            UNKNOWN,
            "cannot be read: Not a directory",
            ledger.allocations,
            "run it as root",
        )
    ]


def test_a_dead_containers_share_is_found(ledger: Ledger, tmp_path: Any) -> None:
    settings = settings_of(ledger)
    assert containers.examine(settings)[0] == Finding("dead-containers", OK, "none holds a share")
    runtime = FakeRuntime(f"{tmp_path}/other")
    with ledger:
        for id in ("gone", "stopped"):
            dead = record(id, runtime=runtime.words)
            ledger.write(dead, limits.page_of(dead))
    runtime.set_state("stopped", "stopped")
    assert containers.examine(settings)[0] == Finding(
        "dead-containers",
        WARNING,
        "dead, and shares not released",
        "gone, stopped",
        "run 'vcuda release --all-dead'; the next claim that needs the room does it too",
    )


def test_a_pods_container_between_two_starts_is_well(ledger: Ledger, tmp_path: Any) -> None:
    runtime = FakeRuntime(f"{tmp_path}/pods")
    runtime.set_state("s", "running")
    pod = {"uid": "u", "namespace": "ml", "name": "train", "container": "main", "sandbox_id": "s"}
    with ledger:
        ended = record("pod-u.main", container_id="c1", pod=pod, runtime=runtime.words)
        ledger.write(ended, limits.page_of(ended))
        ledger.remove("box")
    assert containers.examine(settings_of(ledger)) == [
        Finding("dead-containers", OK, "none holds a share"),
        Finding("shim-not-loaded", OK, "no program in a container goes round the shim"),
        Finding("older-shim", OK, "no container has the shim of another version"),
    ]


def test_a_named_slice_that_no_container_holds_is_well(ledger: Ledger) -> None:
    with ledger:
        slice = record("cdi@train", container_id="", runtime=[])
        ledger.write(slice, limits.page_of(slice))
        ledger.remove("box")
    assert containers.examine(settings_of(ledger)) == [
        Finding("dead-containers", OK, "none holds a share"),
        Finding("shim-not-loaded", OK, "no program in a container goes round the shim"),
        Finding("older-shim", OK, "no container has the shim of another version"),
    ]


def test_a_containers_processes_are_those_of_its_cgroups_and_below(tmp_path: Any) -> None:
    of = {
        "self": "3:devices:/system.slice\n0::/system.slice\n",
        "10": "3:devices:/pod/box\n0::/pod/box\n",
        "11": "3:devices:/pod/box/inner\n0::/pod/box\n",
        "12": "3:devices:/pod/box\n0::/pod/box/a:b\n",
        "13": "3:devices:/pod/box2\n0::/pod/box2\n",
        "14": "3:devices:/pod\n0::/pod\n",
        "15": "3:devices:/\n0::/pod/box\n",
        "20": "3:devices:/system.slice\n0::/system.slice\n",
        "21": "3:devices:/system.slice\n0::/system.slice\n",
    }
    for pid, cgroups in of.items():
        write(f"{tmp_path}/{pid}/cgroup", cgroups)
    write(f"{tmp_path}/16/comm", "it has ended\n")
    assert container_processes.of(10, str(tmp_path)) == [10, 11, 12]
    # It has no cgroups of its own: the owners of the others are unknown.
    assert container_processes.of(20, str(tmp_path)) == [20]


@pytest.fixture
def installed(tmp_path: Any) -> Iterator[Installed]:
    installed = Installed(f"{tmp_path}/prefix")
    installed.configure(runtime=installed.runtime.path, state_dir=f"{tmp_path}/state")
    yield installed


def test_a_closed_claim_socket_is_distinguished_from_an_answering_one(
    installed: Installed, tmp_path: Any, capfd: Any
) -> None:
    state_dir = f"{tmp_path}/state"
    closed = Finding("door", INFO, "not open: each container's start runs Python", hint=OPEN_IT)
    assert state.socket_answers(state.knock(state_dir)) == closed
    with installed.claim_server():
        for _ in range(5):  # none of its workers minds
            assert state.socket_answers(state.knock(state_dir)) == Finding(
                "door", OK, "'vcuda serve' answers"
            )
    assert state.socket_answers(state.knock(state_dir)) == closed
    assert capfd.readouterr().err == ""


def test_an_unanswered_claim_socket_is_reported(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(state, "SOCKET_SECONDS", 0.3)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hung:
        hung.bind(f"{tmp_path}/door.sock")
        hung.listen(1)
        assert state.socket_answers(state.knock(str(tmp_path))) == Finding(
            "door",
            WARNING,
            "gave no answer in 0.3 s: each start waits for it",
            hint="restart 'vcuda serve'",
        )
