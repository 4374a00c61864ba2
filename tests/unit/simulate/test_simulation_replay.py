"""What becomes of a trace on a cluster: which pods are placed, which wait, what is lost to
fragments."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from support.ledger.samples import GIB
from support.scheduler.clusters import SETTINGS
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.model.pod_request import ask_of
from vcuda_plugin.extender.quota import quota_limits
from vcuda_plugin.simulate import fgd_trace, nodes, replay, report
from vcuda_plugin.simulate.fragmentation import Mix
from vcuda_plugin.simulate.policies import policies
from vcuda_plugin.simulate.replay import Outcome, Replay
from vcuda_plugin.simulate.trace_pod import TracePod

ALL = ["binpack", "spread", "topology", "no-reserve", "first-fit", "best-fit", "fgd"]


def replayed(
    pods: list[TracePod],
    *groups: str,
    policy: str = "binpack",
    seed: int = 1,
    mix: Any = None,
    limits: Any = MappingProxyType({}),
) -> Outcome:
    mix = mix or Mix(pods)
    found = Replay(nodes.parse(list(groups)), policies(mix, seed)[policy], mix, limits)
    return found.run(pods)


def where(outcome: Outcome) -> dict[str, list[str]]:
    """The GPUs of each pod, as node and index."""
    return {
        name: [uuid.removeprefix("GPU-node-0000") for uuid in uuids]
        for name, uuids in outcome.placed.items()
    }


def test_what_fits_nowhere_waits_for_an_end_and_the_higher_priority_waits_less() -> None:
    pods = [
        TracePod("first", 0, duration=10, core=100),
        TracePod("low", 1, duration=5, core=100),
        TracePod("high", 2, duration=5, core=100, priority=1),
        TracePod("too large", 3, count=2),
        TracePod("late", 30, core=40),
    ]
    outcome = replayed(pods, "1x1:H100:80GiB")
    assert list(outcome.placed) == ["first", "high", "low", "late"]
    assert outcome.waited == [0, 8, 14, 0]
    assert outcome.never == {"too large"}
    assert outcome.allocated == [1, 1, 1, 1, pytest.approx(0.4)]
    found = report.figures(pods, nodes.parse(["1x1:H100:80GiB"]), outcome)
    assert (found["placed"], found["no_room"], found["never_fits"]) == (4, 0, 1)
    assert (found["placed_percent"], found["at_once_percent"]) == (80, 40)
    assert (found["whole_at_once_percent"], found["quota"]) == (25, None)
    assert found["wait_seconds"] == {"p50": 0, "p99": 14, "most": 14}
    assert found["allocated_percent"] == {"most": 100, "mean": 88}


@pytest.mark.parametrize(("rebalances", "placed"), [(False, 2), (True, 3)])
def test_moves_on_a_node_make_room_for_a_whole_gpu(rebalances: bool, placed: int) -> None:
    pods = [TracePod("a", 0, core=40), TracePod("b", 0, core=30), TracePod("whole", 1)]
    found = Replay(
        nodes.parse(["1x2:H100:80GiB"]),
        policies(Mix(pods), 1)["spread"],
        Mix(pods),
        rebalances=rebalances,
    )
    outcome = found.run(pods)
    figures = report.figures(pods, nodes.parse(["1x2:H100:80GiB"]), outcome)
    assert figures["placed"] == placed
    expected = (
        {"count": 1, "bytes": 24 * GIB, "placed": 1}
        if rebalances
        else dict.fromkeys(("count", "bytes", "placed"), 0)
    )
    assert figures["moves"] == expected
    if rebalances:
        assert outcome.placed["a"] == outcome.placed["b"] != outcome.placed["whole"]


def test_pods_go_to_the_model_and_the_memory_that_they_name() -> None:
    pods = [
        TracePod("t4", 0, core=10, model="t4"),
        TracePod("much", 1, core=10, memory=40 * GIB),
        TracePod("none", 2, core=10, memory=40 * GIB, model="t4"),
        TracePod("parts", 3, core=20, memory=8 * GIB, count=2),
    ]
    outcome = replayed(pods, "1x1:T4:16GiB", "1x2:H100:80GiB", policy="first-fit")
    assert where(outcome) == {"t4": ["0-0"], "much": ["1-0"], "parts": ["1-0", "1-1"]}
    assert outcome.never == {"none"}


@pytest.mark.parametrize("policy", ALL)
def test_no_policy_gives_a_gpu_twice(policy: str) -> None:
    pods = fgd_trace.filling(3, 40)
    by_name = {pod.name: pod for pod in pods}
    outcome = replayed(pods, "3x8:H100:80GiB", "2x2:T4:16GiB", policy=policy)
    held: dict[str, int] = {}
    for name, uuids in outcome.placed.items():
        assert len(uuids) == by_name[name].count
        for uuid in uuids:
            held[uuid] = held.get(uuid, 0) + by_name[name].core
    assert max(held.values()) <= 100
    assert sum(held.values()) / 100 == pytest.approx(outcome.allocated[-1])
    assert outcome.allocated[-1] > 0.8 * 28


@pytest.mark.parametrize("policy", ["binpack", "fgd"])
def test_the_same_seed_gives_the_same_answer(policy: str) -> None:
    def answer(seed: int) -> dict[str, Any]:
        pods = fgd_trace.coming_and_going(seed, 20, 60)
        groups = ["4x4:H100:80GiB"]
        outcome = replayed(pods, *groups, policy=policy, seed=seed)
        found = report.figures(pods, nodes.parse(groups), outcome)
        del found["latency_ms"]
        return {**found, "where": outcome.placed}

    assert answer(1) == answer(1) != answer(2)


def test_fragmentation_is_what_the_paper_calls_so() -> None:
    mix = Mix(
        [
            TracePod("a", core=30),
            TracePod("b", core=30),
            TracePod("c", core=100),
            TracePod("d", count=2),
            TracePod("e", core=30, model="T4"),
        ]
    )
    cluster = Cluster(Rules())
    for facts in nodes.parse(["1x2:H100:80GiB", "1x2:T4:16GiB"]):
        cluster.put_node(facts)
    rows = cluster.rows(list(cluster.nodes))
    free = np.array([[1.0, 0.2] + [0] * 6, [0.5, 0.5] + [0] * 6])
    # Of 0.3: what is below it. Of whole GPUs: what is not whole, or not enough. Of T4: all others.
    first = 2 * 0.2 + 0.2 + 1.2 + 1.2
    second = 0 + 1.0 + 1.0 + 0
    assert mix.lost(cluster, rows, free).tolist() == pytest.approx([first / 5, second / 5])


def test_fgd_keeps_what_the_next_pods_can_use_where_best_fit_does_not() -> None:
    """Free are 60 % on a node of its own, and 50 % beside a whole GPU; pods ask for 50 or 60 %."""
    pods = [
        TracePod("a", core=40, model="one"),
        TracePod("b", core=50, model="two"),
        TracePod("asked", core=50),
    ]
    mix = Mix([TracePod("x", core=60), TracePod("y", core=50)])
    groups = ["1x1:one:80GiB", "1x2:two:80GiB"]
    assert where(replayed(pods, *groups, policy="best-fit", mix=mix))["asked"] == ["0-0"]
    assert where(replayed(pods, *groups, policy="fgd", mix=mix))["asked"] == ["1-0"]


def test_topology_places_linked_gpus_together_and_shows_it() -> None:
    pods = [
        TracePod("share", 0, core=50),
        *(TracePod(f"pair-{n}", 1 + n, count=2) for n in range(3)),
    ]
    groups = ["1x8:H100:80GiB:2"]
    outcome = replayed(pods, *groups, policy="topology")
    assert where(outcome) == {
        "share": ["0-0"],
        **{f"pair-{n}": [f"0-{2 * n + 2}", f"0-{2 * n + 3}"] for n in range(3)},
    }
    assert report.figures(pods, nodes.parse(groups), outcome)["linked_percent"] == 100


def test_every_pod_of_a_generated_trace_is_understood() -> None:
    for pod in fgd_trace.filling(5, 200):
        ask = ask_of(pod.as_object(), SETTINGS)
        assert ask and ask.core == pod.core * pod.count


def test_a_pod_refused_by_its_quota_alone_waits_for_its_own_namespace() -> None:
    pods = [
        TracePod("first", 0, duration=10, core=60, namespace="team"),
        TracePod("over", 1, core=50, namespace="team"),
        TracePod("others", 2, core=50, namespace="free"),
        TracePod("no room", 3, count=2, namespace="free"),
        TracePod("no model", 4, core=10, namespace="none"),
    ]
    limits = quota_limits.limits('{"team": {"quota": {"H100": 1}}, "none": {}}')
    groups = ["1x2:H100:80GiB"]
    outcome = replayed(pods, *groups, limits=limits)
    assert outcome.forbidden == {"over", "no model"}
    assert (list(outcome.placed), outcome.waited) == (["first", "others", "over"], [0, 0, 9])
    assert outcome.never == {"no model"}
    assert report.figures(pods, nodes.parse(groups), outcome, limits)["quota"] == {
        "refused": 2,
        "never_placed": 1,
        "used": [{"namespace": "team", "model": "H100", "most": 0.6, "limit": 1}],
    }


def test_a_quota_of_a_pool_sends_pods_to_its_nodes_only() -> None:
    pods = [TracePod(name, core=60, namespace="team") for name in ("a", "b")]
    limits = quota_limits.limits('{"team": {"quota": {"H100": 8}, "pool": ["public"]}}')
    groups = ["1x1:H100:80GiB@private", "1x1:H100:80GiB@public"]
    outcome = replayed(pods, *groups, policy="first-fit", limits=limits)
    assert (where(outcome), outcome.forbidden) == ({"a": ["1-0"]}, {"b"})


def test_without_the_reserve_a_share_opens_the_smaller_node_instead_of_going_beside_another() -> (
    None
):
    """Free are 50 % beside three whole GPUs, and one GPU on a node of its own."""
    pods = [TracePod("a", core=50, model="four"), TracePod("asked", core=40)]
    groups = ["1x4:four:80GiB", "1x1:one:80GiB"]
    assert where(replayed(pods, *groups))["asked"] == ["0-0"]
    assert where(replayed(pods, *groups, policy="no-reserve"))["asked"] == ["1-0"]


def test_long_wait_names_the_number_of_arrived_processes(monkeypatch: Any) -> None:
    monkeypatch.setattr(replay, "REPORT_EVERY_SECONDS", 0)
    pods = [TracePod(f"p-{n}", n, duration=5) for n in range(3)]
    mix, told = Mix(pods), list[tuple[int, int]]()
    described = nodes.parse(["1x1:H100:80GiB"])
    Replay(
        described,
        policies(mix, 1)["binpack"],
        mix,
        progress=lambda come, waiting: told.append((come, waiting)),
    ).run(pods)
    # At each start and each end.
    assert told == [(1, 0), (2, 1), (3, 2), (3, 1), (3, 0), (3, 0)]
