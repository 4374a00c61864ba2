"""Pods of one PodGroup, with kube-scheduler's calls: all are filtered, then all are bound."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from support.api_server.fake_api_server import FakeApiServer
from support.scheduler import extender
from support.scheduler.clusters import container, gpus_of, node, pod
from support.scheduler.extender import Extender
from vcuda_plugin.extender.filter.gang import group_of


def member(name: str, core: int, group: str = "gang") -> dict[str, Any]:
    made = pod(name, container(core=core))
    made["spec"]["schedulingGroup"] = {"podGroupName": group}
    return made


@pytest.fixture
def api() -> FakeApiServer:
    """Node a has two GPUs, node b one."""
    made = FakeApiServer()
    made.add(node("a", gpus_of("a", 16, 16)))
    made.add(node("b", gpus_of("b", 16)))
    return made


@contextlib.contextmanager
def ready(api: FakeApiServer, folder: Any, *pods: dict[str, Any]) -> Iterator[Extender]:
    with api.running():
        api.put(*pods)
        with extender.ready(api, folder) as started:
            yield started


def filtered(started: Extender, *pods: dict[str, Any]) -> list[list[str]]:
    """The nodes that each pod may have."""
    return [started.filter(each, "a", "b")["NodeNames"] or [] for each in pods]


def test_members_see_what_those_before_them_will_have(api: FakeApiServer, tmp_path: Any) -> None:
    pods = [member(f"m{at}", 60) for at in range(3)]
    with ready(api, tmp_path, *pods) as started:
        nodes = filtered(started, *pods)
        assert sorted(nodes) == [["a"], ["a"], ["b"]]
        # Beside them nothing of that size fits; a pod alone is not narrowed to one node.
        assert filtered(started, pod("other", container(core=60))) == [[]]
        assert sorted(*filtered(started, pod("small", container(core=40)))) == ["a", "b"]
        assert [started.bind(each, *at) for each, at in zip(pods, nodes)] == [""] * 3
        assert [[api.pod(f"m{at}")["spec"]["nodeName"]] for at in range(3)] == nodes


def test_group_that_does_not_fit_lets_go_of_everything(api: FakeApiServer, tmp_path: Any) -> None:
    pods = [member(f"m{at}", 60) for at in range(4)]
    with ready(api, tmp_path, *pods) as started:
        for _ in range(3):  # attempts
            assert [len(nodes) for nodes in filtered(started, *pods)] == [1, 1, 1, 0]
            alone = pod("other", container(core=200))
            assert filtered(started, alone) == [["a"]]


def test_members_that_were_let_go_are_bound_where_they_still_fit(
    api: FakeApiServer, tmp_path: Any
) -> None:
    """minCount is below the number of pods: kube-scheduler binds those that fit."""
    pods = [member(f"m{at}", 60) for at in range(4)]
    with ready(api, tmp_path, *pods) as started:
        nodes = filtered(started, *pods)
        assert [started.bind(each, *at) for each, at in zip(pods, nodes[:3])] == [""] * 3


def test_next_attempt_begins_without_what_the_former_held(
    api: FakeApiServer, tmp_path: Any
) -> None:
    first, second = member("first", 100), member("second", 100)
    other = member("other", 100, "another")
    with ready(api, tmp_path, first, second, other) as started:
        assert [len(nodes) for nodes in filtered(started, first, second, other)] == [1, 1, 1]
        # Of the same group only.
        assert [len(nodes) for nodes in filtered(started, first, second)] == [1, 1]
        assert filtered(started, pod("alone", container(core=10))) == [[]]


@pytest.mark.parametrize(
    "thing",
    [
        {},
        {"spec": None, "metadata": []},
        {"spec": {"schedulingGroup": "x"}, "metadata": {"namespace": "n"}},
        {"spec": {"schedulingGroup": {"podGroupName": ["x"]}}, "metadata": {"namespace": "n"}},
        {"spec": {"schedulingGroup": {"podGroupName": ""}}, "metadata": {"namespace": "n"}},
    ],
)
def test_pods_without_a_usable_group_are_scheduled_alone(thing: Any) -> None:
    assert group_of(thing) is None
