"""Bindings on an API server that has changes not yet received as events."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from support.ledger.samples import GIB
from support.scheduler import clusters
from support.scheduler.clusters import SETTINGS, container, facts, gpus_of, node
from vcuda_oci.ledger.decision import Decision, parse
from vcuda_oci.model import names
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.extender.bind.bind import Binder
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.filter.extender_api import Binding

ASKED = Binding("default", "p", "uid-p", "n")
PENDING = clusters.pod("p", container(core=30, memory=16))


class Server:
    """A fake API server with one pod; records its requests."""

    def __init__(self, pod: dict[str, Any] | None, code: int = 201) -> None:
        self.pod, self.code, self.sent = pod, code, list[Any]()

    async def call(self, method: str, path: str, body: Any = None, *_: Any) -> tuple[int, Any]:
        if method == "GET":
            return (200, self.pod) if self.pod else (404, {})
        self.sent.append(body)
        return self.code, {"message": "said"}


def bind(cluster: Cluster, server: Server, asked: Binding = ASKED) -> str:
    binder = Binder(cluster, server, SETTINGS)
    return asyncio.run(binder.bind(asked))


def held(cluster: Cluster) -> dict[str, list[GpuShare]]:
    return {uid: shares for uid, shares in cluster.nodes["n"].holds.items() if shares}


NODE = node("n", gpus_of("n", 16, 16))


def test_a_pod_that_another_program_bound_meanwhile_is_counted_as_bound() -> None:
    bound = clusters.pod(
        "p",
        container(core=30, memory=16),
        node="n",
        shares={"main": [GpuShare("GPU-n-1", 4 * GIB, 30)]},
    )
    cluster = clusters.cluster(NODE, PENDING)
    assert bind(cluster, Server(bound, 409)) == ""
    assert held(cluster) == {"uid-p": [GpuShare("GPU-n-1", 4 * GIB, 30)]}
    cluster.expire(time.monotonic() + 1e6)
    assert held(cluster) == {"uid-p": [GpuShare("GPU-n-1", 4 * GIB, 30)]}
    cluster.put_pod(facts(bound))
    assert (list(held(cluster)), cluster.assumed) == (["uid-p"], {})


def test_a_pod_without_an_event_is_asked_for() -> None:
    cluster = clusters.cluster(NODE)
    server = Server(PENDING)
    assert bind(cluster, server) == ""
    (sent,) = server.sent
    assert (sent["metadata"]["uid"], sent["target"]["name"]) == ("uid-p", "n")
    assert parse(sent["metadata"]["annotations"][names.ANNOTATION_DECISION]).containers == {
        "main": [GpuShare("GPU-n-0", 4 * GIB, 30)]
    }
    assert list(held(cluster)) == ["uid-p"]
    assert bind(clusters.cluster(NODE), Server(None)) == "pod default/p is gone"


def test_a_pod_that_ends_while_it_is_bound_holds_nothing() -> None:
    cluster = clusters.cluster(NODE, PENDING)

    class Ending(Server):
        async def call(self, method: str, path: str, body: Any = None, *_: Any) -> tuple[int, Any]:
            cluster.end_pod("uid-p")
            return await super().call(method, path, body)

    assert bind(cluster, Ending(PENDING)) == ""
    assert (held(cluster), cluster.assumed) == ({}, {})


def test_a_pod_that_is_bound_elsewhere_after_a_lost_answer_is_counted_there_only() -> None:
    cluster = clusters.cluster(NODE, node("m", gpus_of("m", 16)), PENDING)
    assert bind(cluster, Server(PENDING, 500)) == "the API server: 500 said"
    assert list(held(cluster)) == ["uid-p"]
    assert bind(cluster, Server(PENDING), Binding("default", "p", "uid-p", "m")) == ""
    assert (held(cluster), list(cluster.nodes["m"].holds)) == ({}, ["uid-p"])


def test_event_received_before_the_answer_counts_the_pod_once() -> None:
    cluster = clusters.cluster(NODE, PENDING)

    class Telling(Server):
        async def call(self, method: str, path: str, body: Any = None, *_: Any) -> tuple[int, Any]:
            annotations = body["metadata"]["annotations"]
            bound = clusters.pod("p", container(core=30, memory=16), node="n")
            bound["metadata"]["annotations"] = annotations
            cluster.put_pod(facts(bound))
            return await super().call(method, path, body)

    assert bind(cluster, Telling(PENDING)) == ""
    assert (held(cluster), cluster.assumed) == ({"uid-p": [GpuShare("GPU-n-0", 4 * GIB, 30)]}, {})
    server = Server(PENDING)
    assert (bind(cluster, server), server.sent) == ("", [])


def test_each_container_logs_its_share_or_refusal_with_its_allocation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    pending = clusters.pod("p", container(core=30, memory=16), container("b", core=100))
    full = clusters.pod("q", container(core=200), node="n")
    shares = {"main": [GpuShare("GPU-n-1", GIB, 9)]}
    bound = clusters.pod("p", container(core=9, memory=4), node="n", shares=shares)
    assert bind(clusters.cluster(NODE, pending), Server(pending)) == ""
    assert bind(clusters.cluster(NODE, pending), Server(bound, 409)) == ""
    assert bind(clusters.cluster(NODE, pending), Server(pending, 500)) != ""
    assert bind(clusters.cluster(NODE, pending, full), Server(pending)) != ""
    assert bind(clusters.cluster(NODE), Server(None)) == "pod default/p is gone"
    main, b = " (allocation pod-uid-p.main)", " (allocation pod-uid-p.b)"
    no_room = "node n: 0 of 2 GPUs are wholly free; 1 asked"
    assert caplog.messages == [
        f"bind default/p (uid-p) to n: {what}"
        for what in (
            "30 % and 4.0 GiB of GPU-n-1" + main,
            "100 % and 16.0 GiB of GPU-n-0" + b,
            "9 % and 1.0 GiB of GPU-n-1" + main,
            *("the API server: 500 said" + id for id in (main, b)),
            *(no_room + id for id in (main, b)),
            "pod default/p is gone",
        )
    ]


def test_a_clock_that_jumps_gives_nothing_up(monkeypatch: Any) -> None:
    cluster = clusters.cluster(NODE, PENDING)
    for now in (1e18, 0):
        monkeypatch.setattr(time, "time_ns", lambda now=now: int(now))
        monkeypatch.setattr(time, "time", lambda now=now: now / 1e9)
        assert bind(cluster, Server(PENDING, 500)) == "the API server: 500 said"
        assert list(held(cluster)) == ["uid-p"]


def test_a_node_that_has_filled_up_since_the_filter_is_refused_with_the_reason() -> None:
    full = clusters.pod("q", container(core=200), node="n")
    cluster, server = clusters.cluster(NODE, PENDING, full), Server(PENDING)
    assert bind(cluster, server) == (
        "node n: largest free share is 0 % and 0.0 GiB on GPU-n-0; 30 % and 4.0 GiB asked"
    )
    assert (server.sent, list(held(cluster))) == ([], ["uid-q"])


def test_what_the_scheduler_sends_without_asking_for_gpus_is_bound_as_it_is() -> None:
    server = Server(clusters.pod("p", {"name": "c"}))
    assert bind(clusters.cluster(NODE), server) == ""
    assert server.sent[0]["metadata"]["annotations"] == {}


def test_gpumanagers_annotations_name_each_containers_gpus_by_index() -> None:
    pod = clusters.pod(
        "p",
        {"name": "a"},
        container("b", core=50),
        container("c", core=100),
        annotations={"vcuda.io/policy": "best-effort"},
        inits=(container("first", core=10),),
    )
    server = Server(pod)
    assert bind(clusters.cluster(node("n", gpus_of("n", 16, 16, 16))), server) == ""
    annotations = server.sent[0]["metadata"]["annotations"]
    assert {key: value for key, value in annotations.items() if "gpu-idx" in key} == {
        "tencent.com/predicate-gpu-idx-1": "1",
        "tencent.com/predicate-gpu-idx-2": "0",
    }
    made = parse(annotations[names.ANNOTATION_DECISION])
    assert isinstance(made, Decision)
    assert (list(made.containers), made.words) == (["first", "b", "c"], {"policy": "best-effort"})
