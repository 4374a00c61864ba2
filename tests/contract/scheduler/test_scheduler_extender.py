"""The extender as a process, called as by kube-scheduler, with a failing API server."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.api_server.fake_api_objects import LEASES
from support.api_server.fake_api_server import NODES, PODS, FakeApiServer, status
from support.ledger.samples import GIB
from support.scheduler import extender
from support.scheduler.clusters import container, gpus_of, node, pod
from support.scheduler.extender import Extender, ready
from vcuda_oci.model import names
from vcuda_plugin.extender.filter.patience import WAIT_SECONDS

ASKING = pod("asking", container(core=30, memory=16))
BINDING = "/api/v1/namespaces/default/pods/asking/binding"


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with extender.api_of_two_nodes() as api_server:
        yield api_server


def free(running: Extender, node: str) -> list[int]:
    return [gpu["core_free"] for gpu in running.inspect(node)["gpus"]]


def ask(api: FakeApiServer, **changes: Any) -> dict[str, Any]:
    """A fresh copy of the pod that asks, known to the API server."""
    asking: dict[str, Any] = json.loads(json.dumps(ASKING))
    asking["metadata"] |= changes
    api.put(asking)
    return asking


def test_node_gets_no_pod_while_its_agents_pod_is_not_ready(
    api: FakeApiServer, tmp_path: Any
) -> None:
    agent = pod("agent", container(), node="a", namespace="vcuda")
    agent["metadata"]["labels"] = {"app.kubernetes.io/name": "vcuda-node-agent"}

    def become(is_ready: bool) -> None:
        again = json.loads(json.dumps(agent))
        statuses = [{"name": "agent", "ready": is_ready}]
        again["status"] = {"phase": "Running", "containerStatuses": statuses}
        api.put(again)

    become(False)
    with ready(api, tmp_path, "--agents", "vcuda") as running:
        asking = ask(api)
        found = running.filter(asking, "a", "b")
        why = "the node agent is away: its pod is not ready"
        assert found["NodeNames"] == ["b"]
        assert found["FailedAndUnresolvableNodes"] == {"a": why}
        become(True)
        running.wait(lambda: running.filter(asking, "a", "b")["NodeNames"] == ["a", "b"])
        become(False)
        running.wait(lambda: running.filter(asking, "a", "b")["NodeNames"] == ["b"])
        # It watches the agents' Leases, too.
        queries = [query for _, path, query in api.requests if path == LEASES]
        assert {each["labelSelector"] for each in queries} == {
            "app.kubernetes.io/name=vcuda-node-agent"
        }


def test_a_pod_is_filtered_scored_and_bound_with_its_decision(
    api: FakeApiServer, tmp_path: Any
) -> None:
    with ready(api, tmp_path) as running:
        asking = ask(api)
        wanted = {"Pod": asking, "Nodes": None, "NodeNames": ["a", "b", "c"]}
        filtered = running.post("predicates", wanted)
        assert filtered == {
            "Nodes": None,
            "NodeNames": ["a", "b"],
            "FailedNodes": {"c": "not known to the scheduler extender yet"},
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        }
        assert running.post("predicates", wanted) == filtered
        scored = running.post("priorities", {"Pod": asking, "NodeNames": ["a", "b"]})
        assert [each["Host"] for each in scored] == ["a", "b"]
        assert all(0 <= each["Score"] <= 10 for each in scored)
        before = time.time_ns()
        assert running.bind(asking, "a") == ""
        bound = api.pod("asking")
        assert bound["spec"]["nodeName"] == "a"
        annotations = bound["metadata"]["annotations"]
        assert before <= int(annotations.pop("tencent.com/predicate-time")) <= time.time_ns()
        decided = {"uuid": "GPU-a-0", "core_percent": 30, "memory_bytes": 4 * GIB}
        assert json.loads(annotations.pop(names.ANNOTATION_DECISION)) == {
            "containers": {"main": [decided]}
        }
        assert annotations == {
            "tencent.com/predicate-node": "a",
            "tencent.com/predicate-gpu-idx-0": "0",
            "tencent.com/gpu-assigned": "false",
        }
        assert free(running, "a") == [70, 100]
        # One call, so there is nothing between two that could be lost.
        writes = [(method, path) for method, path, _ in api.requests if method == "POST"]
        assert writes == [("POST", BINDING)]
        assert running.bind(asking, "a") == ""
        running.wait(lambda: running.bind(asking, "b") == "the pod is bound to a already")


def test_a_scheduler_that_sends_whole_nodes_gets_them_back(
    api: FakeApiServer, tmp_path: Any
) -> None:
    with ready(api, tmp_path) as running:
        items = [{"metadata": {"name": name, "x": [1]}} for name in ("a", "c")]
        wanted = {"Pod": ASKING, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
        assert running.post("predicates", wanted) == {
            "Nodes": {"items": items[:1]},
            "NodeNames": None,
            "FailedNodes": {"c": "not known to the scheduler extender yet"},
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        }
        without_gpu = {"Pod": pod("p", {"name": "c"}), "Nodes": None, "NodeNames": ["a", "z"]}
        assert running.post("predicates", without_gpu)["NodeNames"] == ["a", "z"]


def test_pod_owner_reads_the_reason_of_a_full_node_in_the_schedulers_event(
    api: FakeApiServer, tmp_path: Any
) -> None:
    with ready(api, tmp_path) as running:
        for number in range(2):
            api.put(pod(f"p{number}", container(core=80)))
            assert running.bind(api.pod(f"p{number}"), "a") == ""
        asking = ask(api)
        free = "largest free share is 20 percent and 3.2 GiB on GPU-a-0"
        why = f"{free}; 30 percent and 4.0 GiB asked"
        assert running.filter(asking, "a")["FailedNodes"] == {"a": why}
        assert running.bind(asking, "a") == f"node a: {why}"
        too_much = pod("too-much", container(core=30, memory=400))
        never = "its GPUs never have 30 percent and 100.0 GiB: the largest of 2 has 16.0 GiB"
        assert running.filter(too_much, "a")["FailedAndUnresolvableNodes"] == {"a": never}


def test_pod_is_not_refused_for_what_only_the_late_watch_does_not_know(
    api: FakeApiServer, tmp_path: Any
) -> None:
    with ready(api, tmp_path) as running:
        api.put(pod("holds", container(core=80)))
        assert running.bind(api.pod("holds"), "b") == ""
        asking = ask(api)
        assert running.filter(asking, "b")["NodeNames"] == []
        time.sleep(5 * WAIT_SECONDS)  # the next refusal may wait again
        api.late_seconds = WAIT_SECONDS / 4
        api.delete("default/holds")
        assert running.filter(asking, "b")["NodeNames"] == ["b"]
        time.sleep(5 * WAIT_SECONDS)
        api.put(node("new", gpus_of("new", 16)))
        assert running.filter(asking, "new")["NodeNames"] == ["new"]


def test_before_the_cluster_is_read_nothing_is_placed(api: FakeApiServer, tmp_path: Any) -> None:
    api.before = lambda method, path, body: status(500, "down") if path == PODS else None
    with extender.running(api, tmp_path) as running:
        line = b"the scheduler extender has not read the cluster yet; it will in a moment\n"
        assert running.call("GET", "/readyz") == (503, line)
        assert running.call("GET", "/healthz") == (200, b"ok\n")
        filtered = running.filter(ASKING, "a")
        assert (filtered["NodeNames"], filtered["Error"]) == (None, line.decode().strip())
        assert running.bind(ask(api), "a") == line.decode().strip()
        api.before = lambda *_: None
        running.wait_ready()
        assert running.filter(ASKING, "a")["NodeNames"] == ["a"]


@pytest.mark.parametrize("answer", ["drop", "drop after"])
def test_a_binding_whose_answer_is_lost_is_made_once_by_the_next_try(
    api: FakeApiServer, tmp_path: Any, answer: str
) -> None:
    with ready(api, tmp_path) as running:
        asking = ask(api)
        api.before = lambda method, path, body: answer if path == BINDING else None
        assert "the API server: POST " in running.bind(asking, "a")
        assert free(running, "a") == [70, 100]
        api.before = lambda *_: None
        assert running.bind(asking, "a") == ""
        bound = api.pod("asking")
        assert bound["spec"]["nodeName"] == "a"
        assert free(running, "a") == [70, 100]


@pytest.mark.parametrize("when", ["before the binding", "after the binding"])
def test_an_extender_killed_while_binding_leaves_a_state_that_the_next_corrects(
    api: FakeApiServer, tmp_path: Any, when: str
) -> None:
    asking = ask(api)
    with ready(api, tmp_path) as running:

        def kill(method: str, path: str, body: Any) -> str | None:
            if path != BINDING:
                return None
            running.process.send_signal(signal.SIGKILL)
            running.process.wait()
            return "drop" if when.startswith("before") else "drop after"

        api.before = kill
        with pytest.raises(OSError):
            running.bind(asking, "a")
    api.before = lambda *_: None
    with ready(api, tmp_path) as running:
        assert free(running, "a") == ([100, 100] if when.startswith("before") else [70, 100])
        assert running.bind(asking, "a") == ""
        bound = api.pod("asking")
        assert (bound["spec"]["nodeName"], free(running, "a")) == ("a", [70, 100])
        assert json.loads(bound["metadata"]["annotations"][names.ANNOTATION_DECISION])


def test_deleted_or_replaced_pod_is_not_bound(api: FakeApiServer, tmp_path: Any) -> None:
    with ready(api, tmp_path) as running:
        assert running.bind(ASKING, "a") == "pod default/asking is gone"
        another = ask(api, uid="another")
        running.wait(lambda: free(running, "a") == [100, 100])
        line = "pod default/asking is another one now: UID another, and uid-asking was to be bound"
        assert running.bind(ASKING, "a") == line
        # The watch lags: only the API server knows that the pod was recreated.
        api.before = lambda method, path, body: status(409, "UID") if path == BINDING else None
        assert running.bind(another, "a") == "the API server: 409 UID"
        assert free(running, "a") == [100, 100]
        assert running.bind(another, "nowhere") == (
            "node nowhere: not known to the scheduler extender"
        )


def test_a_watch_that_breaks_or_is_too_old_loses_no_pod(api: FakeApiServer, tmp_path: Any) -> None:
    api.page = 2
    api.put(*[pod(f"p{n}", container(core=10), node="b", uid=f"u{n}") for n in range(5)])
    with ready(api, tmp_path) as running:
        assert free(running, "b") == [50]
        api.bookmark()
        api.end_watches()
        api.put(pod("more", container(core=20), node="b"))
        running.wait(lambda: free(running, "b") == [30])
        api.forget()
        api.delete("default/p0")
        running.wait(lambda: free(running, "b") == [40])
        api.put(node("b", gpus_of("b", 16, unhealthy={"GPU-b-0": "Xid 79"})))
        running.wait(lambda: running.filter(ASKING, "b")["NodeNames"] == [])
        assert running.filter(ASKING, "b")["FailedAndUnresolvableNodes"] == {
            "b": "every GPU is unhealthy: Xid 79"
        }
        api.delete("b", NODES)
        running.wait(lambda: running.inspect("b") is None)


def test_known_objects_serve_requests_during_an_api_outage(
    api: FakeApiServer, tmp_path: Any
) -> None:
    with ready(api, tmp_path) as running:
        asking = ask(api)
        running.wait(lambda: running.bind(asking, "z") != "pod default/asking is gone")
        api.before = lambda *_: "drop"
        api.end_watches()
        assert running.filter(ASKING, "a")["NodeNames"] == ["a"]
        assert running.call("GET", "/readyz")[0] == 200
        assert "the API server: " in running.bind(asking, "a")


def test_metrics_and_version_are_served(api: FakeApiServer, tmp_path: Any) -> None:
    with ready(api, tmp_path) as running:
        running.filter(ASKING, "a")
        code, page = running.call("GET", "/metrics")
        lines = page.decode().splitlines()
        assert code == 200
        assert "vcuda_extender_nodes 2.0" in lines
        assert 'vcuda_extender_call_seconds_count{verb="predicates"} 1.0' in lines
        assert running.call("GET", "/version") == (200, b'{"version":"0.1.0"}')
        whole = json.loads(running.call("GET", "/inspect")[1])["nodes"]
        assert [(each["name"], each["gpus"], each["wholly_free"]) for each in whole] == [
            ("a", 2, 2),
            ("b", 1, 1),
        ]
        running.process.terminate()
        assert running.process.wait(30) == 0
