"""The claim socket answers or Python does; no claim succeeds twice or is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.files import write
from support.gpu.driver_root import DriverRoot
from support.ledger.faults import killed_at
from support.ledger.lease_holder import holding
from support.ledger.samples import left_in, shares_of
from support.processes import children_of, is_asleep, name_of
from support.waiting import until
from support.wrapper.installed_wrapper import Installed
from support.wrapper.wrapper_node import ENV, HALF_SHARE, Node, asking
from vcuda_oci.ledger import liveness
from vcuda_oci.model import names
from vcuda_oci.start import claim_socket


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.counting_python_starts(str(tmp_path_factory.mktemp("prefix")))


@pytest.fixture
def node(installed: Installed, tmp_path: Any) -> Iterator[Node]:
    node = Node(installed, DriverRoot(tmp_path / "driver", count=2), tmp_path)
    yield node
    installed.forget_python_starts()


def python_starts(node: Node) -> int:
    return node.installed.python_starts()


def shared_once(node: Node) -> bool:
    """One record, one edit, one call of the low-level runtime."""
    places = [mount["destination"] for mount in node.edited()["mounts"]]
    edits = places.count(names.GUEST_LIMITS)
    return (shares_of(node.ledger), edits, len(node.runtime.calls())) == (
        {"box": HALF_SHARE},
        1,
        1,
    )


def children(pid: int) -> set[int]:
    """Those that live."""
    return {pid for pid in children_of(pid) if liveness.start_time(pid)}


def test_the_claim_socket_of_a_killed_server_is_closed(node: Node) -> None:
    with node.installed.claim_server() as server:
        workers = children(server.pid)
        server.kill()
        server.wait()
        # A worker may answer once more before it sees that it is alone.
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers))
        assert node.create(asking()) == (0, "")
        assert shared_once(node)
        assert python_starts(node) == 1


def test_a_worker_that_was_killed_is_replaced(node: Node) -> None:
    with node.installed.claim_server() as server:
        killed = children(server.pid)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(children(server.pid) - killed) == len(killed))
        assert node.create(asking()) == (0, "")
        assert (shared_once(node), python_starts(node)) == (True, 0)


def test_callers_one_after_the_other_wake_one_worker(node: Node) -> None:
    with node.installed.claim_server() as server:
        assert node.create(asking()) == (0, "")
        workers = [pid for pid in children(server.pid) if name_of(pid) not in claim_socket.KEEPERS]
        before = {pid: switches(pid) for pid in workers}
        for _ in range(5):
            until(lambda: all(map(is_asleep, workers)))  # it collects garbage after its answer
            assert node.create(asking()) == (0, "")
        # The others may have looked around once.
        assert len([pid for pid in workers if switches(pid) > before[pid] + 1]) == 1
    assert python_starts(node) == 0


def switches(pid: int) -> int:
    """How often the process has waited."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt"))


def test_a_refused_image_costs_the_claim_socket_no_worker_and_no_memory(node: Node) -> None:
    folder = node.bundle + "/rootfs/etc/ld.so.conf.d"
    first = write(folder + "/0.conf", "".join(f"/{number}\n" for number in range(10_000)))
    for number in range(1, 1000):
        os.link(first, f"{folder}/{number}.conf")
    with node.installed.claim_server() as server:
        workers = children(server.pid)
        for number in range(8):
            status, line = node.create(asking(), id=f"bad{number}")
            assert (status, "bytes in ld.so.conf" in line) == (1, True), line
        assert shares_of(node.ledger) == {}
        assert children(server.pid) == workers
        assert max(peak_mib(pid) for pid in workers) < 200
        shutil.rmtree(folder)
        node.runtime.forget()
        assert node.create(asking()) == (0, "")
        assert (shared_once(node), python_starts(node)) == (True, 0)


def peak_mib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:"))


def test_a_claim_server_that_hangs_is_given_up_after_a_while(node: Node) -> None:
    with node.installed.claim_server() as server:
        processes = [server.pid, *children(server.pid)]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            assert node.create(asking()) == (0, "")
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
        assert python_starts(node) == 1
        assert node.create(asking(), id="second") == (0, "")
        # Once continued, the server finds that the caller has ended, and claims nothing.
        assert set(shares_of(node.ledger)) == {"box", "second"}
        assert python_starts(node) == 1


def test_a_later_claim_server_takes_the_socket_over(node: Node) -> None:
    with node.installed.claim_server() as first:
        with node.installed.claim_server() as second:
            assert first.wait(30) == 0
            assert second.poll() is None
            assert node.create(asking()) == (0, "")
            assert shared_once(node)
        assert not os.path.exists(f"{node.ledger.state_dir}/{claim_socket.NAME}")
    assert python_starts(node) == 0


def test_a_claim_server_that_ends_leaves_no_socket(node: Node) -> None:
    with node.installed.claim_server():
        path = f"{node.ledger.state_dir}/{claim_socket.NAME}"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert not os.path.exists(path)


def test_a_killed_claim_server_leaves_its_place_to_the_next(node: Node) -> None:
    with node.installed.claim_server() as first:
        for pid in (first.pid, *children(first.pid)):
            os.kill(pid, signal.SIGKILL)
        first.wait()
        assert os.path.exists(f"{node.ledger.state_dir}/{claim_socket.NAME}")
        with node.installed.claim_server():
            assert node.create(asking()) == (0, "")
            assert (shared_once(node), python_starts(node)) == (True, 0)


def test_a_user_who_locks_all_that_may_be_opened_holds_up_no_start(node: Node) -> None:
    with node.installed.claim_server():
        assert node.create(asking(), id="before") == (0, "")
    with (
        holding("flock all", node.ledger.state_dir, user=65534),
        node.installed.claim_server(),
        holding("flock all", node.ledger.state_dir, user=65534),
    ):
        assert node.create(asking(), id="box") == (0, "")
        assert python_starts(node) == 0


def test_the_next_server_opens_the_socket_of_one_killed_while_opening_it(node: Node) -> None:
    os.makedirs(node.ledger.state_dir)
    path, at, left = f"{node.ledger.state_dir}/{claim_socket.NAME}", 1, set()
    while killed_at(
        at, lambda: claim_socket.ClaimServer(node.ledger.state_dir, node.installed.settings)
    ):
        left |= set(left_in(node.ledger.state_dir))
        with node.installed.claim_server():
            assert node.create(asking(), id=f"box{at}") == (0, "")
        assert (os.path.exists(path), python_starts(node)) == (False, 0)
        at += 1
    assert "door.sock.new" in left
    with node.ledger:
        node.ledger.sweep(lambda held: False)
    assert left_in(node.ledger.state_dir) == ["host.json"]


def test_claim_server_with_a_removed_socket_fails_with_an_error(node: Node) -> None:
    """Its supervisor starts it again then; one that was taken over ends with 0."""
    with node.installed.claim_server() as server:
        os.unlink(f"{node.ledger.state_dir}/{claim_socket.NAME}")
        assert server.wait(30) == 1


def test_in_another_mount_namespace_the_claim_socket_is_closed(node: Node) -> None:
    """The same path may be another file there."""
    node.create(asking())  # writes the bundle
    node.runtime.forget()
    with node.ledger:
        node.ledger.remove("box")
    before = python_starts(node)
    with node.installed.claim_server():
        words = [node.installed.launcher, "create", "--bundle", node.bundle, "box"]
        subprocess.run(["unshare", "-m", *words], env=ENV, check=True)
    assert python_starts(node) == before + 1
    assert shared_once(node)


def test_a_relative_bundle_is_the_callers(node: Node) -> None:
    with node.installed.claim_server():
        node.create({})
        node.runtime.forget()
        with open(node.config, "w") as file:
            json.dump(asking(), file)
        words = [node.installed.launcher, "--root", "r", "create", "-b", "bundle", "box"]
        subprocess.run(words, cwd=node.folder, env=ENV, check=True)
    assert shared_once(node)
    held = node.ledger.get("box")
    assert held and held.runtime == [node.runtime.path, "--root", node.folder + "/r"]


def test_only_root_is_answered(node: Node) -> None:
    with node.installed.claim_server():
        path = f"{node.ledger.state_dir}/{claim_socket.NAME}"
        os.chmod(path, 0o666)
        for folder in (node.ledger.state_dir, node.folder, os.path.dirname(node.folder)):
            os.chmod(folder, 0o755)
        script = (
            "import os, socket, sys; os.setuid(65534); "
            "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); "
            "s.send(b'/c\\0/r\\0create\\0x\\0'); print(s.recv(99))"
        )
        descriptor = os.open(path, os.O_PATH)
        name = f"/proc/self/fd/{descriptor}"
        ran = subprocess.run(
            ["/usr/bin/python3", "-c", script, name],
            pass_fds=[descriptor],
            capture_output=True,
            text=True,
        )
        assert (ran.stdout, ran.returncode) == ("b'?'\n", 0), ran.stderr


class FakeClaimServer:
    """A claim socket that answers with `answer(words, pid of the caller)`."""

    def __init__(self, node: Node, answer: Callable[[list[str]], bytes]) -> None:
        os.makedirs(node.ledger.state_dir, exist_ok=True)
        self.path = f"{node.ledger.state_dir}/{claim_socket.NAME}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(self.path)
        self.socket.listen()
        self.thread = threading.Thread(target=self.serve, args=(answer,))

    def serve(self, answer: Callable[[list[str]], bytes]) -> None:
        connection, _ = self.socket.accept()
        with connection:
            words = connection.recv(claim_socket.MOST_BYTES).decode().split("\0")[:-1]
            if reply := answer(words):
                connection.sendall(reply)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.thread.join(30)
        self.socket.close()
        os.unlink(self.path)


def test_after_a_claim_server_dies_between_claim_and_answer_python_claims_again(node: Node) -> None:
    def claim_and_die(words: list[str]) -> bytes:
        ran = subprocess.run(
            ["/usr/bin/python3", "-c", CLAIM, node.installed.python_path, *words], env=ENV
        )
        assert ran.returncode == 0
        return b""

    with FakeClaimServer(node, claim_and_die):
        assert node.create(asking()) == (0, "")
    assert shared_once(node)


CLAIM = (
    "import os, sys; sys.path.insert(0, sys.argv[1]); from vcuda_oci.container import bundle; "
    "from vcuda_oci.start import main as runtime; "
    "runtime.apply_request(bundle.Command(sys.argv[4:]), sys.argv[2], sys.argv[3], "
    "os.getppid())"
)


def test_a_late_failure_does_not_revoke_the_retried_claim(node: Node) -> None:
    late: list[subprocess.Popen[str]] = []

    def claim_and_stall(words: list[str]) -> bytes:
        command = ["/usr/bin/python3", "-c", LATE, node.installed.python_path, *words]
        pipe = subprocess.PIPE
        late.append(subprocess.Popen(command, env=ENV, stdin=pipe, stdout=pipe, text=True))
        assert late[0].stdout and late[0].stdout.readline() == "claimed\n"
        return b""

    with FakeClaimServer(node, claim_and_stall):
        assert node.create(asking()) == (0, "")
    reply, _ = late[0].communicate("go on\n", 30)
    assert (reply, late[0].returncode) == ("b'-there: fails; mend it\\x00box'\n", 0)
    assert shared_once(node)


LATE = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
from vcuda_oci.container import bundle
from vcuda_oci.start import claim_socket as server
from vcuda_oci.model.errors import VcudaError
launcher, here = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

def fail(*_):
    launcher.close()
    print("claimed", flush=True)
    sys.stdin.readline()
    raise VcudaError("fails", "there", "mend it")

bundle.replace_config = fail
launcher.send(b"".join(os.fsencode(word) + b"\\0" for word in sys.argv[2:]))
print(server._answer(here))
"""


@pytest.mark.parametrize("answer", [b"?", b"", b"x", b"\0", b"?" * 60_000])
def test_an_answer_that_is_none_means_python(node: Node, answer: bytes) -> None:
    with FakeClaimServer(node, lambda words: answer):
        assert node.create(asking()) == (0, "")
    assert (shared_once(node), python_starts(node)) == (True, 1)


def test_a_refusal_is_the_callers_one_line_whatever_its_length(node: Node) -> None:
    with FakeClaimServer(node, lambda words: b"-" + b"r" * 50_000):
        status, line = node.create(asking())
    assert status == 1
    assert line.startswith("vcuda-container-runtime: rrr") and line.count("\n") == 1
    assert node.runtime.calls() == []


def test_arguments_too_long_for_a_packet_go_to_python(node: Node) -> None:
    with node.installed.claim_server():
        options = ["--log-level", "x" * 70_000]
        assert node.create(asking(), *options) == (0, "")
    assert (shared_once(node), python_starts(node)) == (True, 1)
