"""A container that holds leases and locks on its pages holds up no command and no service.

The kernel lets an open wait 45 s for a lease that its holder does not give up. Each command here
has to end well before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from contract.host.ledger.test_page_file import FLAGS, flags_of
from support.agent.agent_http import Served
from support.files import ROOT, write
from support.ledger.lease_holder import holding
from support.ledger.samples import GIB, gpus, record
from support.needed import skip_or_fail
from support.waiting import until
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_hook.live import usage
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.pages import layout, limits, page_reader
from vcuda_oci.start import claim_socket
from vcuda_plugin.agent.bypass.guest_slots import read
from vcuda_plugin.agent.compute import shortage_watch
from vcuda_plugin.agent.compute.grants import Node
from vcuda_plugin.agent.ledger import sweep
from vcuda_plugin.agent.ledger.records import Records
from vcuda_plugin.kube.node_gpus import NodeGpus

MOST_SECONDS = 30
HELD = [("usage", "write lease"), ("usage", "read lease"), ("limits", "read lease")]

VCUDA = """
import sys; sys.path[:0] = sys.argv.pop(1).split(':')
from vcuda_oci.host import host
from vcuda_hook.show import show
from vcuda_oci.host.host import Host
from vcuda_oci.model.gpu import Gpu
facts = Host("", "600.1", "/usr/lib", [Gpu("GPU-0", 0, 0, 16 << 30, "Soft")])
host.load = lambda root, cache: facts
from vcuda_oci.start import apply_share
apply_share.host_of = lambda settings: facts
from vcuda_hook.cli import main as cli
sys.exit(cli.main(sys.argv[1:]))
"""


class LeasedNode:
    """A node with one GPU: "hostile" has pages that a test holds, "neighbour" does nothing."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.ledger = Ledger(folder + "/state")
        self.runtime = FakeRuntime(folder + "/bin")
        lines = f'state-dir = "{folder}/state"\n'
        self.config = write(folder + "/config.toml", lines)
        for id in ("hostile", "neighbour"):
            self.runtime.set_state(id, "running")
            share = GpuShare("GPU-0", 4 * GIB, 20, "elastic", 50)
            held = record(id, runtime=self.runtime.words, shares=[share])
            with self.ledger:
                self.ledger.write(held, limits.page_of(held))

    def page(self, name: str) -> str:
        return f"{self.ledger.containers}/hostile/{name}"

    def vcuda(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*words),
            capture_output=True,
            text=True,
            check=False,
            timeout=MOST_SECONDS,
        )

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """While `vcuda serve` runs."""
        with subprocess.Popen(self._command("serve")) as server:
            try:
                until(lambda: os.path.exists(f"{self.ledger.state_dir}/{claim_socket.NAME}"))
                yield
            finally:
                server.terminate()

    def _command(self, *words: str) -> list[str]:
        sources = ":".join(f"{ROOT}/{part}" for part in ("oci", "runtime_hook", "plugin"))
        return [sys.executable, "-IBc", VCUDA, sources, "--config", self.config, *words]


@pytest.fixture
def node(tmp_path: Any) -> LeasedNode:
    return LeasedNode(str(tmp_path))


@pytest.fixture(params=HELD, ids=[f"{kind} on {name}" for name, kind in HELD])
def held(request: pytest.FixtureRequest, node: LeasedNode) -> Iterator[str]:
    """The page on which the container holds leases or locks."""
    name, kind = request.param
    with holding(kind, node.page(name)):
        yield name


def is_leased(path: str) -> bool:
    inode = os.stat(path).st_ino
    with open("/proc/locks") as locks:
        return any("LEASE  ACTIVE" in line and f":{inode} " in line for line in locks)


def in_time(call: Any) -> Any:
    """What `call` answers, in a thread: one that waits for a lease fails the test alone."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(MOST_SECONDS)
    assert not thread.is_alive(), "it waits for the lease"
    return answers[0]


def test_ps_and_inspect_answer_while_a_page_is_leased(node: LeasedNode, held: str) -> None:
    listed = node.vcuda("ps", "--json")
    assert listed.returncode == 0, listed.stderr
    usage_of = {entry["id"]: entry["usage"] for entry in json.loads(listed.stdout)}
    assert usage_of["neighbour"] == "told"
    assert usage_of["hostile"] in ("told", "unreadable")
    assert node.vcuda("inspect", "hostile").returncode == 0


def test_limit_changes_the_share_or_refuses_at_once(node: LeasedNode, held: str) -> None:
    done = node.vcuda("limit", "hostile", "--core", "10")
    known = node.ledger.get("hostile")
    assert known and known.becoming is None
    if held == "limits":
        assert done.returncode == 1
        assert "a process holds a file lease on it; try again in a minute" in done.stderr
        assert known.shares[0].core_percent == 20
    else:
        assert done.returncode == 0, done.stderr
        assert known.shares[0].core_percent == 10
    assert node.vcuda("limit", "neighbour", "--core", "15").returncode == 0


def test_where_pages_are_kept_open_a_container_cannot_refuse_a_new_limit(node: LeasedNode) -> None:
    def changes() -> bool:
        done = node.vcuda("limit", "hostile", "--core", "10")
        return done.returncode == 0

    with holding("read lease anew", node.page("limits")):
        for _ in range(3):
            until(lambda: is_leased(node.page("limits")))
            assert not changes()
        with node.serving():
            until(changes)
            assert node.vcuda("limit", "hostile", "--core", "12").returncode == 0
    known = node.ledger.get("hostile")
    assert known and known.shares[0].core_percent == 12


@pytest.mark.parametrize("kind", ["write lease anew", "read lease anew"])
def test_where_pages_are_kept_open_what_a_container_added_is_taken_back(
    node: LeasedNode, kind: str
) -> None:
    page = node.page("usage")
    os.truncate(page, 1 << 30)
    with holding(kind, page):
        for _ in range(10):
            until(lambda: is_leased(page))
            assert node.ledger.cut_back() == []
        with node.serving():
            until(node.ledger.cut_back)
            for _ in range(100):
                os.truncate(page, 1 << 30)
                assert node.ledger.cut_back() == ["hostile"]


def test_where_pages_are_kept_open_a_leased_and_frozen_page_is_taken_back() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # a tmpfs, as /run/vcuda is
        node = LeasedNode(folder)
        page = node.page("usage")
        try:
            flags_of(page, 0)
        except OSError:
            skip_or_fail("this kernel's tmpfs has no flags")
        os.truncate(page, 1 << 20)
        with holding("write lease anew", page):
            flags_of(page, FLAGS["immutable"])
            until(lambda: is_leased(page))  # anew, as that opened it
            assert node.ledger.cut_back() == []
            with node.serving():
                until(node.ledger.cut_back)
                assert os.path.getsize(page) == layout.USAGE_SIZE


def test_leased_page_of_an_ended_container_is_truncated_until_closed(
    node: LeasedNode,
) -> None:
    path = node.page("usage")
    with holding("write lease anew", path), node.serving():
        until(lambda: node.ledger.cut_back() or not os.truncate(path, 1 << 30))
        with open(path, "r+b") as page:
            with node.ledger:
                node.ledger.remove("hostile")
            for _ in range(2):
                page.truncate(1 << 30)
                until(lambda: os.fstat(page.fileno()).st_size == layout.USAGE_SIZE)
        assert len(os.listdir(node.ledger.ended)) == 1
    with node.serving():
        until(lambda: not os.listdir(node.ledger.ended))


def test_the_agent_checks_every_other_container(node: LeasedNode, held: str) -> None:
    def look() -> None:
        records = Records(node.ledger.state_dir)
        assert sweep.sweep(records) == []
        shortage_watch.ShortageWatch(node.ledger.state_dir).check()
        grants = Node(node.ledger.state_dir)
        grants.sample()
        grants.close()
        try:
            read(node.ledger.containers + "/hostile")
        except BlockingIOError:
            pass

    in_time(look)


def test_extended_page_of_a_neighbour_is_truncated(node: LeasedNode, held: str) -> None:
    longer = node.ledger.containers + "/neighbour/usage"
    os.truncate(longer, 1 << 30)
    assert in_time(node.ledger.cut_back) == ["neighbour"]


def test_http_answers_all_while_a_page_is_leased(node: LeasedNode, held: str) -> None:
    served = Served(node.ledger.state_dir)
    in_time(lambda: served.send_gpus(NodeGpus(gpus(16))))
    assert in_time(lambda: served.get("/metrics"))[0] == 200
    assert in_time(lambda: served.get("/healthz"))[0] == 200
    assert served.end() == 0


def test_a_slices_page_that_is_leased_is_not_revoked_in_silence(node: LeasedNode) -> None:
    share = GpuShare("GPU-0", GIB, 10)
    made = record("cdi@team", runtime=[], container_id="", shares=[share])
    with node.ledger:
        node.ledger.write(made, limits.page_of(made))
    with holding("read lease", f"{node.ledger.containers}/cdi@team/limits"):
        removed = node.vcuda(
            "cdi", "remove", "--force", "team", "--output", node.folder + "/cdi.json"
        )
    assert removed.returncode == 1
    assert "a process holds a file lease on it" in removed.stderr
    assert node.ledger.get("cdi@team")


def test_many_locks_on_a_page_cost_one_poll_a_few_walks(
    node: LeasedNode,
) -> None:
    """To ask for one lock the kernel goes through all; there are 256 slots to ask for."""
    path = node.page("usage")
    with holding("locks", path, 3000), open(path, "rb") as page:
        ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, layout.USAGE_LOCK_BASE, 1, 0)
        once = cheapest(lambda: fcntl.fcntl(page, page_reader.F_OFD_GETLK, ask))
        whole = cheapest(lambda: page_reader.live_slots(page.fileno()))
        assert page_reader.live_slots(page.fileno()) == frozenset()
    assert whole < 30 * once


def test_a_page_with_too_many_locks_has_no_figures(
    node: LeasedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_slots_used(node.page("usage"), 1)
    assert usage.take_sample(node.ledger, record("hostile")) is not None
    monkeypatch.setattr(page_reader, "LOCKS_SECONDS", -1)
    assert usage.take_sample(node.ledger, record("hostile")) is None


def cheapest(call: Any) -> float:
    """Seconds of a processor."""
    found = []
    for _ in range(20):
        began = time.thread_time()
        call()
        found.append(time.thread_time() - began)
    return min(found)


def write_slots_used(path: str, count: int) -> None:
    with open(path, "r+b") as page:
        os.pwrite(page.fileno(), count.to_bytes(4, sys.byteorder), 12)
