"""A container's share is released once the launcher has waited for its `delete`."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.files import write
from support.ledger.samples import record, shares_of
from support.wrapper.installed_wrapper import Installed
from vcuda_oci.guest import file_handle
from vcuda_oci.ledger import events, liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.pages import layout, limits

GONE = "echo 'container does not exist' >&2; exit 1"
RUNS = """echo '{"id": "box", "status": "running"}'"""
ROOT = "/run/engine"
DELETE = ("--root", ROOT, "delete", "box")


class Node:
    """Containers `box` and `other` that hold a share, and a low-level runtime by script.

    name: the runtime's. delete, state: what it does for these verbs.
    """

    def __init__(self, installed: Installed, folder: str, name: str = "runtime") -> None:
        self.installed, self.folder = installed, folder
        self.ledger = Ledger(folder + "/state")
        self.runtime = f"{folder}/{name}"
        installed.configure(runtime=self.runtime, state_dir=self.ledger.state_dir)
        self.does(delete="true", state=GONE)
        for id in ("box", "other"):
            self.hold(id)

    def hold(self, id: str, *root: str) -> None:
        allocation = record(id)
        allocation.runtime = [self.runtime, "--root", *(root or (ROOT,))]
        with self.ledger:
            self.ledger.write(allocation, limits.page_of(allocation))

    def does(self, delete: str, state: str) -> None:
        lines = [
            "#!/bin/sh",
            f'echo "$$ $*" >> {self.folder}/calls',
            f'case "$*" in *" state "*) {state};; *) {delete};; esac',
        ]
        write(self.runtime, "\n".join(lines) + "\n", 0o755)

    def call(self, *words: str, **options: Any) -> tuple[int, str]:
        """Exit status and stderr."""
        ran = subprocess.run([self.installed.launcher, *words], capture_output=True, **options)
        return ran.returncode, ran.stderr.decode()

    def delete(self, *words: str) -> tuple[int, str]:
        return self.call("--root", ROOT, "delete", *(words or ("box",)))

    def calls(self) -> list[str]:
        with open(self.folder + "/calls") as lines:
            return [line.rstrip("\n").partition(" ")[2] for line in lines]

    def holders(self) -> list[str]:
        """Which containers hold a share, and which have pages."""
        assert sorted(os.listdir(self.ledger.containers)) == sorted(shares_of(self.ledger))
        return sorted(shares_of(self.ledger))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.counting_python_starts(str(tmp_path_factory.mktemp("prefix")))


@pytest.fixture
def node(installed: Installed, tmp_path: Any) -> Iterator[Node]:
    yield Node(installed, str(tmp_path))
    installed.forget_python_starts()


@pytest.mark.parametrize("words", [["box"], ["--force", "box"], ["-f", "--", "box"]])
def test_delete_releases_the_share_through_the_claim_socket(node: Node, words: list[str]) -> None:
    os.makedirs(node.ledger.containers + "/box/procfs/gpus/0000:01:00.0")
    write(node.ledger.containers + "/box/procfs/gpus/0000:01:00.0/information", "")
    with node.installed.claim_server():
        assert node.delete(*words) == (0, "")
    assert (node.holders(), node.installed.python_starts()) == (["other"], 0)
    (event,) = events.read(node.ledger.state_dir)
    known = {key: value for key, value in event.items() if key != "time"}
    assert known == {
        "from": "vcuda-container-runtime",
        "kind": events.RELEASED,
        "allocation": "box",
        "text": "its container is deleted",
        "container": "box",
    }
    assert abs(event["time"] - time.time()) < 60


def test_delete_releases_the_share_through_python_without_a_claim_socket(node: Node) -> None:
    assert node.delete() == (0, "")
    assert (node.holders(), node.installed.python_starts()) == (["other"], 1)


@pytest.mark.parametrize("name", ["runc", "crun"])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_removed_state_folder_proves_the_end(
    installed: Installed, tmp_path: Any, name: str, is_open: bool
) -> None:
    """The runtime's folder and the claiming process are checked; the runtime is not called."""
    node, root = Node(installed, str(tmp_path), name), f"{tmp_path}/root"
    node.hold("box", root)
    write(f"{root}/box/state.json", "{}")
    node.does(delete=f"rm -r {root}/box", state=RUNS)
    with node.installed.claim_server() if is_open else contextlib.nullcontext():
        assert node.call("--root", root, "delete", "box") == (0, "")
    assert node.holders() == ["other"]
    assert node.calls() == [f"--root {root} delete box"]
    installed.forget_python_starts()


@pytest.mark.parametrize("name", ["runc", "crun"])
def test_delete_spares_a_new_claim_without_a_state_folder(
    installed: Installed, tmp_path: Any, name: str
) -> None:
    """The next instance with the same id has claimed; its runtime has made no folder yet."""
    node, root = Node(installed, str(tmp_path), name), f"{tmp_path}/root"
    os.makedirs(root)
    node.hold("box", root)
    node.does(delete="true", state=GONE)
    allocation = node.ledger.get("box")
    assert allocation
    allocation.claimant = [os.getpid(), liveness.start_time(os.getpid())]
    with node.ledger:
        node.ledger.record(allocation)
    assert node.call("--root", root, "delete", "box") == (0, "")
    assert node.holders() == ["box", "other"]
    installed.forget_python_starts()


def test_an_error_in_the_claim_socket_is_the_callers_one_line(node: Node) -> None:
    write(f"{node.ledger.allocations}/box.json", "{")
    with node.installed.claim_server():
        status, line = node.delete()
    assert (status, line.count("\n"), node.installed.python_starts()) == (0, 1, 0)
    assert line.startswith(f"vcuda-container-runtime: {node.ledger.allocations}/box.json: ")
    assert line.endswith(" (allocation box)\n")


# A process that was handed a page, until its standard input ends.
KEEP = """
import ctypes, os, socket, sys
path, how = sys.argv[1:]
page = os.open(path, os.O_RDWR)
ours, others = socket.socketpair()
if how == "mapped":
    ctypes.CDLL(None).mmap(None, ctypes.c_size_t(4096), 3, 1, page, ctypes.c_long(0))
if how == "on its way":
    socket.send_fds(ours, [b"x"], [page])
if how != "open":
    os.close(page)
print("kept", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["open", "mapped", "on its way"])
def test_a_deleted_containers_page_is_recorded_while_a_process_has_it(node: Node, how: str) -> None:
    page = node.ledger.containers + "/box/usage"
    handle = os.path.basename(file_handle.of(page, ""))
    words = [sys.executable, "-ISc", KEEP, page, how]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdin and keeper.stdout and keeper.stdout.readline() == b"kept\n"
        assert node.delete() == (0, "")
        assert node.holders() == ["other"]
        assert os.listdir(node.ledger.ended) == [handle]
    node.ledger.cut_ended()
    assert os.listdir(node.ledger.ended) == []


def test_a_deleted_containers_page_that_is_opened_later_is_found(node: Node) -> None:
    """It has no name then, and the process only an O_PATH descriptor."""
    path = os.open(node.ledger.containers + "/box/usage", os.O_PATH)
    assert node.delete() == (0, "")
    assert os.fstat(path).st_nlink == 0
    with open(f"/proc/self/fd/{path}", "r+b") as page:
        os.close(path)
        page.truncate(1 << 30)
        node.ledger.cut_ended()
        assert os.fstat(page.fileno()).st_size == layout.USAGE_SIZE


def test_a_deleted_containers_page_that_no_process_has_is_removed(node: Node) -> None:
    assert node.delete() == (0, "")
    assert (os.listdir(node.ledger.ended), node.holders()) == ([], ["other"])


def test_a_root_relative_to_the_engines_folder_is_the_same(node: Node) -> None:
    node.hold("box", node.folder + "/here")
    assert node.call("--root", "here", "delete", "box", cwd=node.folder) == (0, "")
    assert node.holders() == ["other"]


@pytest.mark.parametrize(
    "words", ["delete", "delete none", "delete ../allocations/box", "state box"]
)
def test_a_delete_of_a_container_without_a_share_becomes_the_runtime(
    node: Node, words: str
) -> None:
    node.does(delete="echo $PPID", state="echo $PPID")
    ran = subprocess.run(
        [node.installed.launcher, "--root", ROOT, *words.split()], capture_output=True
    )
    assert (ran.returncode, int(ran.stdout)) == (0, os.getpid())
    assert node.holders() == ["box", "other"]


@pytest.mark.parametrize("state, left", [(RUNS, ["box", "other"]), (GONE, ["other"])])
def test_after_a_failed_delete_the_runtimes_state_decides(
    node: Node, state: str, left: list[str]
) -> None:
    """runc has nothing to delete of a container that it gave up starting."""
    node.does(delete="echo no >&2; exit 3", state=state)
    assert node.delete() == (3, "no\n")
    assert node.holders() == left


@pytest.mark.parametrize("state, left", [(RUNS, ["box", "other"]), (GONE, ["other"])])
def test_the_next_instance_of_a_container_retains_the_taken_over_share(
    node: Node, state: str, left: list[str]
) -> None:
    """The engine is quick, or the launcher is held up: its successor's record is another."""
    path = f"{node.ledger.allocations}/box.json"
    node.does(delete=f"cp {path} {path}.new; mv {path}.new {path}", state=state)
    assert node.delete() == (0, "")
    assert node.holders() == left


@pytest.mark.parametrize("state, left", [(RUNS, ["box", "other"]), (GONE, ["other"])])
def test_a_container_of_the_same_name_in_another_place_keeps_its_share(
    node: Node, state: str, left: list[str]
) -> None:
    node.does(delete="true", state=state)
    assert node.call("--root", "/elsewhere", "delete", "box") == (0, "")
    assert node.holders() == left
    assert node.calls()[1:] == [f"--root {ROOT} state box"]


def test_share_already_released_by_a_hook_is_released(node: Node) -> None:
    node.does(delete=f"rm -r {node.ledger.allocations}/box.json {node.ledger.containers}/box",
              state=GONE)  # fmt: skip
    assert node.delete() == (0, "")
    assert (node.holders(), node.installed.python_starts()) == (["other"], 0)


def test_a_runtime_that_a_signal_ends_ends_the_launcher_alike(node: Node) -> None:
    node.does(delete="kill -9 $$", state=RUNS)
    assert node.delete() == (-signal.SIGKILL, "")
    assert node.holders() == ["box", "other"]


def test_the_next_delete_finishes_one_that_was_killed(node: Node) -> None:
    """The low-level runtime dies with the launcher, as if it stood in its place."""
    node.does(delete="exec sleep 1000", state=GONE)
    front = subprocess.Popen([node.installed.launcher, "--root", ROOT, "delete", "box"])
    deadline, calls = time.monotonic() + 60, node.folder + "/calls"
    # The file is there before its line is.
    while not (os.path.exists(calls) and os.path.getsize(calls)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with open(calls) as line:
        runtime = int(line.read().split()[0])
    front.kill()
    assert front.wait() == -signal.SIGKILL
    while os.path.exists(f"/proc/{runtime}") and _state(runtime) != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert node.holders() == ["box", "other"]
    node.does(delete="true", state=GONE)
    assert node.delete() == (0, "")
    assert node.holders() == ["other"]


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as line:
            return line.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_a_caller_that_ignores_its_children_gets_the_same_answer(node: Node) -> None:
    node.does(delete="exit 4", state=RUNS)
    ran = subprocess.run(
        [node.installed.launcher, "--root", ROOT, "delete", "box"],
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        check=False,
    )
    assert ran.returncode == 4
    assert [call for call in node.calls() if "delete" in call] == [f"--root {ROOT} delete box"]


def test_a_ledger_that_cannot_be_locked_is_one_line_and_no_failure(node: Node) -> None:
    """Its share waits for the sweep; the engine's delete is done."""
    os.unlink(node.ledger.state_dir + "/lock")
    os.mkdir(node.ledger.state_dir + "/lock")
    status, line = node.delete()
    assert (status, line.count("\n")) == (0, 1)
    assert line.startswith(f"vcuda-container-runtime: {node.ledger.state_dir}/lock: cannot be")
    assert line.endswith(" (allocation box)\n")
    assert node.holders() == ["box", "other"]


def test_a_release_is_done_even_if_its_event_cannot_be_written(node: Node) -> None:
    write(f"{node.ledger.state_dir}/{events.NAME}", "\n" * 4096)

    def let_no_file_grow_further() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    # Python ignores SIGXFSZ, and so does the process that it starts here.
    done = node.call(*DELETE, preexec_fn=let_no_file_grow_further, restore_signals=False)
    assert done == (0, "")
    assert node.holders() == ["other"]


def test_container_cannot_release_a_named_slice(node: Node) -> None:
    path = f"{node.ledger.allocations}/box.json"
    with open(path) as file:
        kept = json.load(file)
    write(path, json.dumps({**kept, "container_id": "", "runtime": []}))
    assert node.delete() == (0, "")
    assert node.holders() == ["box", "other"]
