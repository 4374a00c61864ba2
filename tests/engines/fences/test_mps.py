"""Containers under MPS: `isolation=mps`, as a user asks for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from support.agent.claim_server import ClaimServer
from support.engines.base import Engine, Wanted
from support.engines.low_level import LowLevel
from support.engines.mps_containers import end, shown, vcuda
from support.product import MIB, Product, RunOptions, asking
from support.softgpu.mps_processes import daemons, kill_daemons
from support.waiting import until
from support.wrapper.entry_points import Hooked
from vcuda_oci.ledger import events

BUSY = ["vcuda-workload", "busy", "--kernel-us=1000", "--async=4", "--seconds=100"]
HOLD = ["vcuda-workload", "hold", "--bytes", "1048576", "--seconds", "100"]
LIMIT = 256 * MIB


@pytest.fixture
def machine(product: Product, scratch: str) -> Product:
    """With a GPU that no process has used. Before driver 580 clients need a file in /dev/shm."""
    return product.with_gpus(scratch + "/driver", 1, "--driver-version", "570.10")


@pytest.fixture
def served(start_engine: Callable[[str], Engine], machine: Product) -> Iterator[Engine]:
    """runc with the product, and `vcuda serve`."""
    engine = start_engine("runc-v2")
    with machine.on(engine):
        server = ClaimServer(engine.host, machine, machine.state_dir(engine))
        try:
            yield engine
        finally:
            server.close()
            kill_daemons(machine.state_dir(engine))


def mps(engine: Engine, core: int = 30, **more: str) -> RunOptions:
    return asking(engine, core=core, memory_bytes=LIMIT, isolation="mps", **more)


def told(machine: Product, engine: Engine, kind: str) -> list[str]:
    found = events.read(machine.state_dir(engine))
    return [event["text"] for event in found if event["kind"] == kind]


def listed(machine: Product, engine: Engine) -> str:
    return vcuda(machine, engine, "ps", "--wide")


@pytest.mark.parametrize("kind", ["runc-v2", "docker"])
def test_containers_run_at_once_and_the_daemon_ends_with_the_last(
    kind: str, start_engine: Callable[[str], Engine], machine: Product
) -> None:
    engine = start_engine(kind)
    with machine.on(engine):
        server = ClaimServer(engine.host, machine, machine.state_dir(engine))
        try:
            for id, core in (("one", 30), ("two", 70)):
                started = engine.start(id, BUSY, **mps(engine, core))
                assert started.rc == 0, started.stderr
            until(lambda: len(machine.processes()) == 2)
            until(lambda: all(one["kernels_finished"] > 50 for one in machine.processes()))
            before = machine.times()
            time.sleep(1)
            after = machine.times()
            held = [sum(one["held_ns"] for one in each["processes"]) for each in (before, after)]
            # Together, not in turns.
            assert held[1] - held[0] > 1.3 * (after["busy_ns"] - before["busy_ns"])
            inside = engine.exec("one", ["vcuda-workload", "alloc", "--chunk", str(LIMIT)])
            assert json.loads(inside.stdout)["exact_bytes"] == LIMIT
            assert engine.exec("one", ["ls", "/usr/local/vcuda/mps"]).stdout == "control\n"
            assert len(daemons(machine.state_dir(engine))) == 2  # control and server
            end(engine, "one", "two")
            until(lambda: daemons(machine.state_dir(engine)) == [])
        finally:
            server.close()


def test_what_mps_cannot_do_is_refused_in_one_line(
    served: Engine, machine: Product, container: str
) -> None:
    for more, line in (
        ({"policy": "elastic"}, "isolation mps: a share cannot be elastic; use policy fixed"),
        ({"idle_suspend": "10m"}, "isolation mps: cannot be suspended; leave idle-suspend out"),
    ):
        result = served.run(container, ["true"], **mps(served, 30, **more))
        served.delete(container)
        assert result.rc != 0 and line in result.stderr, result.stderr
    held = served.start("turns", ["sleep", "100"], **asking(served, core=10))
    assert held.rc == 0, held.stderr
    result = served.run(container, ["true"], **mps(served))
    served.delete(container)
    assert "its containers take turns" in result.stderr
    end(served, "turns")


def test_without_a_claim_server_no_container_starts_under_mps(
    start_engine: Callable[[str], Engine], machine: Product, container: str
) -> None:
    engine = start_engine("runc-v2")
    with machine.on(engine):
        result = engine.run(container, ["true"], **mps(engine))
        engine.delete(container)
        assert "isolation mps needs 'vcuda serve' or the node agent" in result.stderr
        assert machine.allocations(engine) == []


def test_a_fault_is_reported_for_each_container_and_a_new_one_starts(
    served: Engine, machine: Product, container: str
) -> None:
    for id, program in (("one", BUSY), ("two", HOLD)):
        started = served.start(id, program, **mps(served))
        assert started.rc == 0, started.stderr
    until(lambda: len(machine.processes()) == 2)
    until(lambda: [one["mps"]["clients"] for one in shown(machine, served)] == [2, 2])
    machine.order("fail", "--mps-fault", "0")
    until(lambda: "mps, fault" in listed(machine, served))
    assert served.wait("one") != 0
    served.delete("one")
    until(lambda: len(told(machine, served, events.MPS_ENDED)) > 0)
    assert "a fault of one container's program" in told(machine, served, events.MPS_ENDED)[0]
    refused = served.run(container, ["vcuda-workload", "info"], **mps(served))
    assert "CUDA_ERROR_MPS_SERVER_NOT_READY" in refused.stdout + refused.stderr
    end(served, "two")
    again = served.run(container, ["vcuda-workload", "info"], **mps(served))
    assert again.rc == 0, again.stderr


def test_killed_daemon_and_server_are_replaced_and_nothing_is_left(
    served: Engine, machine: Product, container: str
) -> None:
    started = served.start("one", BUSY, **mps(served))
    assert started.rc == 0, started.stderr
    before = kill_daemons(machine.state_dir(served))
    assert served.wait("one") != 0
    until(lambda: told(machine, served, events.MPS_ENDED) != [])
    until(lambda: len(set(daemons(machine.state_dir(served))) - set(before)) == 2)
    again = served.run(container, ["vcuda-workload", "info"], **mps(served))
    assert again.rc == 0, again.stderr
    served.delete("one")
    until(lambda: daemons(machine.state_dir(served)) == [])


def test_program_without_its_daemon_fails_and_never_runs_unlimited(
    served: Engine, machine: Product
) -> None:
    started = served.start("one", ["sleep", "100"], **mps(served))
    assert started.rc == 0, started.stderr
    script = "CUDA_MPS_PIPE_DIRECTORY=/nowhere CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100 "
    inside = served.exec("one", ["sh", "-c", script + "vcuda-workload busy --seconds 1"])
    assert inside.rc == 0, inside.stderr
    (process,) = machine.times()["ended"]
    assert process["whole_ns"] < 0.31 * process["held_ns"]
    kill_daemons(machine.state_dir(served))
    refused = served.exec("one", ["vcuda-workload", "info"])
    assert "CUDA_ERROR_MPS_CONNECTION_FAILED" in refused.stdout + refused.stderr
    end(served, "one")


def test_hostile_word_on_control_ends_no_more_than_its_gpu(
    served: Engine, machine: Product, container: str
) -> None:
    started = served.start("one", BUSY, **mps(served))
    assert started.rc == 0, started.stderr
    visible = "ls -A /usr/local/vcuda/mps /dev/shm; echo quit |"
    attack = f"{visible} CUDA_MPS_PIPE_DIRECTORY=/usr/local/vcuda/mps nvidia-cuda-mps-control"
    result = served.run(container, ["sh", "-c", attack], **mps(served))
    names = result.stdout.split()
    assert "control" in names and "control_privileged" not in names
    assert len([name for name in names if name.startswith("cuda.shm")]) == 1
    until(lambda: told(machine, served, events.MPS_ENDED) != [])
    assert served.wait("one") != 0
    served.delete("one")
    again = served.run(container, ["vcuda-workload", "info"], **mps(served))
    assert again.rc == 0, again.stderr


@pytest.mark.timed
def test_several_processes_of_a_container_share_its_percentage(
    served: Engine, machine: Product
) -> None:
    script = f"{' '.join(BUSY)} & exec {' '.join(BUSY)}"
    started = served.start("one", ["sh", "-c", script], **mps(served))
    assert started.rc == 0, started.stderr
    until(lambda: len(machine.processes()) == 2)
    until(lambda: all(one["kernels_finished"] > 300 for one in machine.processes()))
    before = machine.times()
    time.sleep(2)
    after = machine.times()
    used = [sum(one["whole_ns"] for one in times["processes"]) for times in (before, after)]
    part = (used[1] - used[0]) / (after["clock_ns"] - before["clock_ns"])
    assert 0.2 < part < 0.33  # not 0.6
    end(served, "one")


def test_container_of_a_hook_joins_the_daemon_too(
    served: Engine, machine: Product, container: str
) -> None:
    assert isinstance(served, LowLevel)
    script = "ls /usr/local/vcuda/mps; exec vcuda-workload busy --seconds 1"
    wanted = Wanted(container, ["sh", "-c", script], annotations=mps(served)["annotations"])
    with served.using(served.plain_runtime()):
        result = Hooked(served, machine).run(wanted, "createRuntime")
    assert (result.rc, result.stdout.split()[0]) == (0, "control"), result.stderr
    (process,) = machine.times()["ended"]
    assert process["whole_ns"] < 0.31 * process["held_ns"]
