"""The container of a host process, by records, runtimes and pages."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.files import write
from support.gpu.slice_users import forge, mapping
from support.host import cgroups
from support.ledger.samples import GIB, record
from support.needed import skip_or_fail
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_oci.ledger import liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.pages import layout, limits
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.bypass import held_containers
from vcuda_plugin.agent.bypass.detection import Share
from vcuda_plugin.agent.bypass.held_containers import HeldContainers

ENGINES_ID = "4f1c" * 16
SLOTS_AT = layout.USAGE_HEAD_SIZE + layout.MAX_GPUS * layout.USAGE_GPU_SIZE


class FakeNode:
    """A ledger, its containers' runtime, and a process that may be one of a container's."""

    def __init__(self, folder: Any, pid: int) -> None:
        self.pid = pid
        self.ledger = Ledger(str(folder / "state"))
        self.runtime = FakeRuntime(folder / "runtime")
        self.containers = HeldContainers(self.ledger.state_dir)

    def add_record(self, id: str, context_bytes: int = 0, **changes: Any) -> Allocation:
        held = record(id, **{"runtime": self.runtime.words, **changes})
        rules = Rules(context_bytes=context_bytes)
        with self.ledger:
            self.ledger.write(held, limits.page_of(held, rules.context_bytes, rules.meter_copies))
        return held

    def runs(self, id: str) -> None:
        state = {"status": "running", "pid": self.pid}
        write(f"{self.runtime.folder}/states/{id}", json.dumps(state))

    def owner(self) -> str | None:
        """The allocation of the container that has the process, after another look at the
        ledger."""
        self.containers.follow()
        held = self.containers.of(self.pid)
        return held.allocation.id if held else None


@pytest.fixture
def node(tmp_path: Any) -> Iterator[FakeNode]:
    process = subprocess.Popen(["sleep", "100"])
    yield FakeNode(tmp_path, process.pid)
    process.kill()
    process.wait()


def test_process_belongs_to_its_container_while_the_record_exists(node: FakeNode) -> None:
    assert node.owner() is None
    node.add_record("other")
    node.add_record("box")
    node.runs("box")
    assert node.owner() == "box"
    with node.ledger:
        node.ledger.remove("box")
    assert node.owner() is None


def test_a_runtime_that_does_not_know_its_container_yet_is_asked_again(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_containers, "_FIRST_PAUSE_SECONDS", 0)
    node.add_record("box")
    assert node.owner() is None
    node.runs("box")
    assert node.owner() == "box"


def test_a_pid_that_the_containers_first_process_had_is_not_its_forever(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.add_record("box")
    node.runs("box")
    assert node.owner() == "box"
    monkeypatch.setattr(liveness, "start_time", lambda pid: 1)
    node.runtime.remove("box")
    assert node.owner() is None


def test_what_a_container_may_have_follows_its_record(node: FakeNode) -> None:
    def shares() -> Any:
        (held,) = node.containers.follow().values()
        return held.holder()

    pod = {"uid": "u", "namespace": "team", "name": "web", "container": "main"}
    node.add_record("box", pod=pod, shares=[GpuShare("GPU-0", GIB, 30)])
    assert shares() == ("pod team/web, container main", {"GPU-0": Share(GIB, 30, False, 0)})
    elastic = [GpuShare("GPU-0", 2 * GIB, 30, "elastic", 70, 30), GpuShare("GPU-1", GIB, 100)]
    node.add_record("box", 300 << 20, shares=elastic)
    assert shares() == (
        "container box",
        {
            "GPU-0": Share(2 * GIB, 70, False, 300 << 20),
            "GPU-1": Share(GIB, 100, True, 300 << 20),
        },
    )


def test_a_named_slices_processes_are_those_that_have_its_page_mapped(node: FakeNode) -> None:
    """No container's name is in its record."""
    node.add_record("cdi@other", runtime=[], container_id="")
    node.add_record("cdi@team", runtime=[], container_id="")
    assert node.owner() is None
    page = f"{node.ledger.containers}/cdi@team/usage"
    with mapping(page) as user:
        node.pid = user.pid
        assert node.owner() == "cdi@team"


def test_a_forged_slot_makes_no_process_a_slices(node: FakeNode) -> None:
    """Every user of the host can write into a slice's page: 1 to 256 are pids that namespaces
    have, and a start time of 0 is what the shim writes where it sees no /proc."""
    node.add_record("cdi@team", runtime=[], container_id="")
    forge(f"{node.ledger.containers}/cdi@team/usage", node.pid)
    assert node.owner() is None


@pytest.fixture
def group() -> Iterator[str]:
    """A cgroup's folder with a name that identifies no container."""
    name = f"/vcuda-it-{os.getpid()}-batch"
    if os.geteuid() != 0:
        skip_or_fail("making cgroups takes root")
    root = next(root for root in cgroups.hierarchies() if os.access(root, os.W_OK))
    os.mkdir(root + name)
    yield root + name
    cgroups.remove(name)


def joined(group: str, *command: str) -> subprocess.Popen[bytes]:
    shell = 'echo 0 > "$0"; exec "$@"'
    return subprocess.Popen(["sh", "-c", shell, f"{group}/cgroup.procs", *command])


def awaited(group: str, count: int) -> list[int]:
    """The pids of the cgroup's processes, once there are so many."""
    for _ in range(1000):
        with open(f"{group}/cgroup.procs") as procs:
            pids = [int(line) for line in procs]
        if len(pids) == count:
            return pids
        time.sleep(0.01)
    raise AssertionError(pids)


def test_a_cgroup_of_a_containers_own_is_its_whatever_its_name(node: FakeNode, group: str) -> None:
    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    with joined(group, *unshare, "sh", "-c", "sleep 100 & sleep 100; :") as process:
        pids = awaited(group, 4)
        # The runtime itself is none of the container's.
        with open(os.path.dirname(group) + "/cgroup.procs", "w") as procs:
            procs.write(str(process.pid))
        init, *others = pids[1:]
        node.pid = init
        node.add_record("box")
        node.runs("box")
        owners = []
        for pid in (init, *others):
            node.pid = pid
            owners.append(node.owner())
        process.kill()
    assert owners == ["box"] * 3


def test_the_cgroup_of_the_runtimes_caller_is_not_the_containers(
    node: FakeNode, group: str
) -> None:
    """Where a runtime made none, a stop must not end its caller's session."""
    with joined(group, "sleep", "100") as session, joined(group, "sleep", "100") as first:
        awaited(group, 2)
        node.pid = first.pid
        node.add_record("box")
        node.runs("box")
        assert node.owner() == "box"
        node.pid = session.pid
        assert node.owner() is None
        session.kill()
        first.kill()


@pytest.mark.parametrize(("user", "owner"), [(0, ENGINES_ID), (65534, None)])
def test_a_cgroup_of_a_containers_name_counts_where_root_alone_can_have_named_it(
    node: FakeNode, group: str, user: int, owner: str | None
) -> None:
    """While the container's runtime cannot be asked. systemd gives each user a cgroup to name
    in."""
    scope = f"{group}/docker-{ENGINES_ID}.scope"
    os.mkdir(scope)
    for folder in (group, scope):
        os.chown(folder, user, user)
    with joined(scope, "sleep", "100") as process:
        try:
            awaited(scope, 1)
            node.pid = process.pid
            node.add_record(ENGINES_ID)
            assert node.owner() == owner
            (held,) = node.containers.follow().values()
            assert not held.cgroups
        finally:
            process.kill()
