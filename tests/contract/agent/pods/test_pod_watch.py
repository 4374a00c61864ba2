"""A scheduler's decisions for a node's pods are stored on the node until the pod ends."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Any

from support.kubelet.watched_pods import CORE, MEMORY, NODE, WatchedPods, decision_annotations
from support.waiting import until
from vcuda_oci.ledger import events

GIB = 1 << 30
MIRROR = "0123456789abcdef0123456789abcdef"
ASKS = {"main": {CORE: 30, MEMORY: 4}}


def test_each_requesting_pod_of_the_node_has_a_decision_file(
    pods: WatchedPods,
) -> None:
    annotations = {
        **decision_annotations(
            main=("GPU-1", 30, GIB), init=("GPU-0", 50, GIB), stranger=("GPU-0", 1, 1)
        ),
        "vcuda.io/policy": "weighted",
        "vcuda.io/weight": "300",
        "vcuda.io/placement": "spread",
        "vcuda.io/latency": "low",
        "vcuda.io/idle-suspend": "10m",
        "vcuda.io/isolation": "turns",
    }
    full = pods.api.create("full", ASKS, init={"init": {CORE: 50}}, annotations=annotations)
    sidecar = {"proxy": {CORE: 10}}
    soft = {"tencent.com/vcuda-core-limit": "60", "vcuda.io/priority": "5"}
    plain = pods.api.create("plain", ASKS, sidecars=sidecar, annotations=soft)
    pods.api.create("asks-nothing", {"main": {"cpu": 1}}, annotations=annotations)
    pods.api.create("elsewhere", ASKS, node="node-2", annotations=annotations)
    more = [pods.api.create(f"page-{number}", ASKS) for number in range(5)]
    nightly = pods.api.create("nightly-28339200-x", ASKS, owner=("Job", "nightly-28339200"))
    pods.follow()
    nothing: dict[str, Any] = {"containers": {}}
    assert pods.decisions() == {
        full: {
            "containers": {
                "main": [{"uuid": "GPU-1", "core_percent": 30, "memory_bytes": GIB}],
                "init": [{"uuid": "GPU-0", "core_percent": 50, "memory_bytes": GIB}],
            },
            "words": {
                "policy": "weighted",
                "weight": "300",
                "placement": "spread",
                "latency": "low",
                "idle-suspend": "10m",
                "isolation": "turns",
            },
            "init": ["init"],
        },
        plain: {
            "containers": {},
            "words": {"priority": "5", "core-limit": "60"},
        },
        **dict.fromkeys(more, nothing),
        nightly: {"containers": {}, "owner": "CronJob/nightly"},
    }
    later = pods.api.create(
        "later", ASKS, annotations=decision_annotations(main=("GPU-0", 30, GIB))
    )
    pods.await_decisions(full, plain, *more, nightly, later)


def test_a_record_stays_as_bound_when_the_pods_author_rewrites_the_annotations(
    pods: WatchedPods,
) -> None:
    bound = {**decision_annotations(main=("GPU-0", 30, GIB)), "vcuda.io/policy": "elastic"}
    rewritten = {**decision_annotations(main=("GPU-1", 30, GIB)), "vcuda.io/policy": "best-effort"}
    uid, undecided = (
        pods.api.create(name, asks, annotations=said)
        for name, asks, said in (("web", ASKS, bound), ("bare", ASKS, {}))
    )
    pods.follow()
    first = pods.decisions()
    assert first[uid]["containers"]["main"][0]["uuid"] == "GPU-0"
    pods.api.annotate(uid, **rewritten)
    pods.api.annotate(undecided, **rewritten)
    last = pods.api.create("last", ASKS)
    pods.await_decisions(uid, undecided, last)
    assert {key: pods.decisions()[key] for key in first} == first
    # A restarted agent ignores them too.
    pods.kill()
    pods.follow()
    assert {key: pods.decisions()[key] for key in first} == first


def test_decision_file_is_removed_when_its_pod_ends_or_disappears(
    pods: WatchedPods,
) -> None:
    uids = [pods.api.create(f"pod-{number}", ASKS) for number in range(5)]
    pods.follow()
    pods.await_decisions(*uids)
    pods.api.delete(uids[0])
    pods.api.end(uids[1], "Succeeded")
    pods.api.end(uids[2], "Failed")
    pods.await_decisions(*uids[3:])
    pods.kill()
    pods.api.delete(uids[3])
    (Path(pods.state_dir) / "decisions" / f"{uids[4]}.json.new").write_text("half a rec")
    pods.follow()
    assert os.listdir(pods.state_dir + "/decisions") == [f"{uids[4]}.json"]


def test_a_pod_created_again_under_its_name_is_another_pod(pods: WatchedPods) -> None:
    pods.follow()
    first = pods.api.create("web", ASKS)
    pods.await_decisions(first)
    second = pods.api.create("web", ASKS)
    pods.await_decisions(second)
    assert pods.decisions() == {second: {"containers": {}}}


def test_decisions_stay_during_an_api_outage_and_the_rest_follow(
    pods: WatchedPods,
) -> None:
    kept, gone = pods.api.create("kept", ASKS), pods.api.create("gone", ASKS)
    pods.follow()
    pods.api.stop()
    until(lambda: any("what is kept stays" in line for line in pods.log()))
    pods.await_decisions(kept, gone)
    pods.api.delete(gone)
    late = pods.api.create("late", ASKS)
    pods.api.start()
    pods.await_decisions(kept, late)
    assert pods.verbs().count("GET") == 1  # the watch went on where it was


# Its pauses take no time; after ten minutes of them it waits for the file "back".
LEAPS = """
import os, time, types
from vcuda_plugin.kube import list_watch
pauses = []
def leap(seconds):
    pauses.append(seconds)
    if sum(pauses) > 600:
        with open({folder!r} + "/ten-minutes.new", "w") as file:
            file.write(f"{{len(pauses)}} {{max(pauses)}}")
        os.rename({folder!r} + "/ten-minutes.new", {folder!r} + "/ten-minutes")
        while not os.path.exists({folder!r} + "/back"):
            time.sleep(0.01)
list_watch.time = types.SimpleNamespace(monotonic=time.monotonic, sleep=leap)
"""


def test_unreachable_api_fills_no_log_and_is_tried_every_two_seconds(
    pods: WatchedPods, tmp_path: Path
) -> None:
    kept, gone = pods.api.create("kept", ASKS), pods.api.create("gone", ASKS)
    pods.follow(LEAPS.format(folder=str(tmp_path)))
    pods.api.stop()
    until((tmp_path / "ten-minutes").exists)
    pauses, longest = (tmp_path / "ten-minutes").read_text().split()
    assert (int(pauses) > 300, float(longest) <= 2) == (True, True)
    assert set(pods.decisions()) == {kept, gone}
    pods.api.delete(gone)
    late = pods.api.create("late", ASKS)
    pods.api.start()
    (tmp_path / "back").touch()
    pods.await_decisions(kept, late)
    # How it failed, and that no server is there.
    troubles = [line for line in pods.log() if "what is kept stays" in line]
    assert 1 <= len(troubles) == len(set(troubles)) <= 2
    assert pods.verbs().count("GET") == 1


def test_a_watch_that_the_api_has_forgotten_begins_with_a_new_list(pods: WatchedPods) -> None:
    old, kept = pods.api.create("old", ASKS), pods.api.create("kept", ASKS)
    pods.follow()
    pods.await_decisions(old, kept)
    pods.api.refuse = 503
    pods.api.cut()
    until(lambda: any("503" in line for line in pods.log()))
    pods.api.delete(old)
    new = pods.api.create("new", ASKS)
    pods.api.forget()
    pods.api.refuse = 0
    pods.await_decisions(kept, new)
    assert pods.verbs().count("GET") == 2


def test_late_look_up_does_not_bring_back_a_pod_of_an_earlier_list(
    pods: WatchedPods,
) -> None:
    uid = pods.api.create("job", ASKS)
    pods.follow()
    pods.await_decisions(uid)
    asked: list[str] = []

    async def end_first() -> None:
        pods.api.delete(uid)
        pods.api.forget()
        while pods.decisions():
            await asyncio.sleep(0.05)

    def applied(method: str, path: str) -> Any:
        if path == "/api/v1/namespaces/default/pods":
            asked.append(path)
        return end_first() if asked == [path] else None

    pods.api.applied = applied
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        for _ in range(2):  # one after the other
            asking.sendto(b"default\0job", f"{pods.state_dir}/pods.sock")
    until(lambda: len(asked) == 2)
    assert not [line for line in pods.log() if "cannot be looked up" in line]
    assert pods.decisions() == {}


def test_bookmarks_move_the_watch_on_while_nothing_of_this_node_happens(
    pods: WatchedPods,
) -> None:
    kept = pods.api.create("kept", ASKS)
    pods.follow()
    until(lambda: "WATCH" in pods.verbs())
    for number in range(10):
        pods.api.create(f"other-{number}", ASKS, node="node-2")
    pods.api.bookmark()
    bookmarked = pods.api.version
    # A pod after the bookmark shows that it was read.
    after = pods.api.create("after", ASKS)
    pods.await_decisions(kept, after)
    pods.api.delete(after)
    pods.await_decisions(kept)
    pods.api.cut()
    until(lambda: pods.verbs().count("WATCH") == 2)
    (_, _, first), (_, _, second) = (r for r in pods.api.requests if r[0] == "WATCH")
    assert (first["allowWatchBookmarks"], pods.verbs().count("GET")) == ("true", 1)
    assert int(first["resourceVersion"]) < bookmarked < int(second["resourceVersion"])


def test_an_invalid_annotation_decides_nothing_and_is_reported_once(
    pods: WatchedPods,
) -> None:
    key = "vcuda.io/placement-decision"
    nonsense: dict[str, tuple[dict[str, Any], str]] = {
        "half": ({key: "{"}, f"{key} is not a decision: "),
        "deep": ({key: "[" * 100_000}, "nested too deeply"),
        "empty": ({key: '{"containers":{"main":[]}}'}, "not a list of shares"),
        "no-text": ({key: ["no", "text"]}, "is not a decision"),
        "another-nodes": (
            decision_annotations("node-2", main=("GPU-1", 30, GIB)),
            "for node 'node-2'",
        ),
        "long": (decision_annotations(main=("G" * 5000, 30, GIB)), "a share that makes no sense"),
    }
    uids = {
        name: pods.api.create(name, ASKS, annotations=said) for name, (said, _) in nonsense.items()
    }
    pods.follow()
    assert pods.decisions() == {uid: {"containers": {}} for uid in uids.values()}
    for name, (said, _) in nonsense.items():
        pods.api.annotate(uids[name], **said, more="words")
    last = pods.api.create("last", ASKS)
    pods.await_decisions(*uids.values(), last)
    texts = [event["text"] for event in events.read(pods.state_dir)]
    assert pods.log() == [
        f"vcuda-node-agent: {text} (allocation pod-{uid}.main)"
        for uid, text in zip(uids.values(), texts, strict=True)
    ]
    for (name, (_, complaint)), text in zip(nonsense.items(), texts, strict=True):
        assert text.startswith(f"pod default/{name} ({uids[name]}): ") and complaint in text
        assert "; it decides nothing here: delete the pod" in text


def test_malformed_pod_does_not_affect_others(pods: WatchedPods) -> None:
    good = pods.api.create("good", ASKS)
    for number, containers in enumerate((1, {}, [1, {"resources": 5}], [{"resources": ASKS}])):
        metadata = {"uid": f"{number}-../../etc/passwd", "annotations": "none"}
        spec = {"nodeName": NODE, "containers": containers, "initContainers": [None]}
        pods.api.put({"metadata": metadata, "spec": spec, "status": []})
    odd = pods.api.create("odd", {"main": {CORE: 1}}, uid="../../../etc/passwd")
    pods.follow()
    pods.await_decisions(good)
    pods.api.annotate(odd, **decision_annotations(main=("GPU-1", 1, GIB)))
    last = pods.api.create("last", ASKS)
    pods.await_decisions(good, last)


def test_a_static_pod_is_known_by_its_mirror_annotation_and_has_no_decision(
    pods: WatchedPods,
) -> None:
    mirror = {"kubernetes.io/config.mirror": MIRROR, "vcuda.io/policy": "best-effort"}
    pods.api.create("static-node-1", ASKS, annotations=mirror)
    victim = pods.api.create("victim", ASKS)
    pods.follow()
    static = {"containers": {}, "words": {"policy": "best-effort"}}
    assert pods.decisions()[MIRROR] == static
    # What an author may write changes neither a static pod's record nor another pod's.
    forged = {
        **decision_annotations(main=("GPU-1", 30, GIB)),
        "kubernetes.io/config.mirror": MIRROR,
    }
    first = pods.api.create("forged", ASKS, annotations=forged)
    pods.api.create("thief", ASKS, annotations={"kubernetes.io/config.mirror": victim})
    until(lambda: any("default/forged" in line for line in pods.log()))
    pods.api.delete(first)
    last = pods.api.create("last", ASKS)
    pods.await_decisions(MIRROR, victim, last)
    assert (pods.decisions()[MIRROR], pods.decisions()[victim]) == (static, {"containers": {}})


def test_container_that_runs_without_its_share_is_reported_once(pods: WatchedPods) -> None:
    uid = pods.api.create("plain", ASKS)
    pods.follow()
    pods.await_decisions(uid)
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status = {"name": "main", "state": {"running": {"startedAt": started}}}
    for ready in (False, True):
        pods.api.put(
            {**pods.api.pods[uid], "status": {"containerStatuses": [{**status, "ready": ready}]}}
        )
    line = (
        "vcuda-node-agent: pod default/plain: a container runs without the share of a GPU that it "
        "asks for; give the pod the RuntimeClass with the handler vcuda-container-runtime, and "
        f"create it anew (allocation pod-{uid}.main)"
    )
    until(lambda: line in pods.log())
    until(lambda: any("GpuShareMissing" in str(each) for each in pods.api.recorded_events.values()))
    last = pods.api.create("last", ASKS)
    pods.await_decisions(uid, last)
    assert pods.log().count(line) == 1
