"""The placement of one pod's containers on one node."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from support.scheduler.clusters import ask, container
from vcuda_oci.ledger.decision import Decision, parse
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.placement.choose import Refused
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.extender.model.instances import decided_holds
from vcuda_plugin.extender.model.place import Placed, decided, place
from vcuda_plugin.extender.model.pod_request import INIT


def found(answer: Placed | Refused) -> dict[str, list[tuple[str, int, int]]]:
    assert isinstance(answer, Placed), answer.reason
    return {
        name: [(share.uuid, share.core_percent, share.memory_bytes // GIB) for share in shares]
        for name, shares in answer.containers.items()
    }


def held(answer: Placed | Refused) -> list[tuple[str, int]]:
    assert isinstance(answer, Placed)
    return sorted((share.uuid, share.core_percent) for share in answer.holds)


def test_the_largest_container_is_placed_first_and_gets_a_whole_gpu() -> None:
    pod = ask(container("small", core=30), container("large", core=100))
    taken = [GpuShare("GPU-1", GIB, 10)]
    answer = place(gpus(16, 16), taken, pod, Rules("spread"))
    assert found(answer) == {"small": [("GPU-1", 30, 4)], "large": [("GPU-0", 100, 16)]}


def test_an_init_container_runs_on_the_others_gpu_and_costs_only_the_excess() -> None:
    pod = ask(container("main", core=60), inits=(container("first", core=80),))
    answer = place(gpus(16, 16), [], pod, Rules())
    assert found(answer) == {"first": [("GPU-0", 80, 12)], "main": [("GPU-0", 60, 9)]}
    assert held(answer) == [("GPU-0", 80)]


def test_a_sidecar_adds_to_the_containers_and_to_the_init_containers_after_it() -> None:
    sidecar = {**container("side", core=30), "restartPolicy": "Always"}
    inits = (container("before", core=90), sidecar, container("after", core=60))
    pod = ask(container("main", core=50), inits=inits)
    answer = place(gpus(16), [], pod, Rules())
    assert list(found(answer)) == ["before", "side", "after", "main"]
    assert held(answer) == [("GPU-0", 90)]
    too_much = ask(container("main", core=50), inits=(sidecar, container("after", core=80)))
    assert isinstance(place(gpus(16), [], too_much, Rules()), Refused)


def test_an_init_container_that_needs_another_gpu_gets_it() -> None:
    pod = ask(container("main", core=60), inits=(container("first", core=200),))
    answer = place(gpus(16, 16), [], pod, Rules())
    assert held(answer) == [("GPU-0", 100), ("GPU-1", 100)]


def test_virtual_gpus_of_one_container_are_on_different_gpus() -> None:
    pod = ask(container("main", gpu=2, gpumem=2048, gpucores=30))
    answer = place(gpus(16, 16), [], pod, Rules())
    assert found(answer) == {"main": [("GPU-0", 30, 2), ("GPU-1", 30, 2)]}
    assert isinstance(place(gpus(16), [], pod, Rules()), Refused)


def test_memory_percent_applies_to_the_chosen_gpu() -> None:
    pod = ask(container("main", gpu=1, percent=50, gpucores=10))
    assert found(place(gpus(16, 8), [], pod, Rules())) == {"main": [("GPU-1", 10, 4)]}
    full = [GpuShare("GPU-1", 5 * GIB, 10)]
    assert found(place(gpus(16, 8), full, pod, Rules())) == {"main": [("GPU-0", 10, 8)]}


def test_decision_sets_the_gpu_and_never_the_amount() -> None:
    pod = ask(container("main", core=150, memory=16))
    machine = {gpu.uuid: gpu for gpu in gpus(16, 16)}
    expected = [GpuShare("GPU-1", 1, 100), GpuShare("GPU-0", 1, 50)]
    assert decided(pod, Decision({"main": expected}), machine) == {
        "main": [GpuShare("GPU-1", 16 * GIB, 100), GpuShare("GPU-0", 4 * GIB, 50)]
    }
    for shares in (
        expected[:1],
        expected[::-1],
        [GpuShare("GPU-1", 1, 100), GpuShare("GPU-1", 1, 50)],
        [],
    ):
        assert decided(pod, Decision({"main": shares}), machine) is None


CONTAINERS = st.lists(
    st.fixed_dictionaries({"core": st.sampled_from([10, 40, 70, 100, 150])})
    | st.fixed_dictionaries({"gpu": st.just(2), "gpucores": st.sampled_from([20, 60])}),
    max_size=3,
)


@settings(max_examples=200)
@given(
    CONTAINERS,
    CONTAINERS,
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50)), max_size=4),
)
def test_no_gpu_is_over_committed_at_any_time_of_a_pods_life(
    apps: Any, inits: Any, sidecars: Any, others: Any
) -> None:
    started = tuple(
        {**container(f"i{n}", **each), **({"restartPolicy": "Always"} if side else {})}
        for n, (each, side) in enumerate(zip(inits, sidecars))
    )
    if not apps:
        return
    pod = ask(*[container(f"a{n}", **each) for n, each in enumerate(apps)], inits=started)
    machine = gpus(16, 16, 16)
    taken = [GpuShare(f"GPU-{gpu}", core * GIB // 25, core) for gpu, core in others]
    if any(sum(s.core_percent for s in taken if s.uuid == g.uuid) > 100 for g in machine):
        return
    answer = place(machine, taken, pod, Rules())
    if isinstance(answer, Refused):
        return
    running: list[Any] = []
    for each in pod.containers:
        now = [*running, *answer.containers[each.name]]
        for gpu in machine:
            mine = sum(share.core_percent for share in now if share.uuid == gpu.uuid)
            rest = sum(share.core_percent for share in taken if share.uuid == gpu.uuid)
            most = sum(share.core_percent for share in answer.holds if share.uuid == gpu.uuid)
            assert mine <= most <= 100 - rest
        if each.stage != INIT:
            running = now
    machine_by_uuid = {gpu.uuid: gpu for gpu in machine}
    read = parse(Decision(answer.containers).dump())
    assert decided(pod, read, machine_by_uuid) == answer.containers
    assert decided_holds(pod, answer.containers, machine_by_uuid, {}) == answer.holds
