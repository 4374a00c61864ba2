"""The cluster page's figures: what a viewer sees of shares, free parts and waiting pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.agent.agent_pages import ParsedPage
from support.gpu.mig_tables import profiles
from support.kubelet.dra_claims import claim, result, slice_of, waiting
from support.ledger.samples import GIB
from support.scheduler.clusters import cluster, container, facts, gpus_of, node, pod
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.dra import devices, partitions
from vcuda_plugin.agent.gpus.inventory import Inventory
from vcuda_plugin.extender.cluster.claims import Claims
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.http import cluster_page, cluster_view, waiting_view
from vcuda_plugin.extender.http.viewer_rights import Sight
from vcuda_plugin.kube.node_gpus import NodeGpus
from vcuda_plugin.web import page_frame

ALL, TEAM, TEAM_ONLY = Sight("", True), Sight("team", True), Sight("team", False)
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202e"


def held(name: str, uuid: str, core: int, gib: int, namespace: str) -> dict[str, Any]:
    shares = {"main": [GpuShare(uuid, gib * GIB, core)]}
    asked = container(core=core, memory=gib * 4)
    return pod(name, asked, node=uuid.split("-")[1], shares=shares, namespace=namespace)


@pytest.fixture
def busy() -> Cluster:
    """Node a with two GPUs, b with one, c without. Pods of two namespaces; three wait."""
    return cluster(
        node("a", gpus_of("a", 16, 16, unhealthy={"GPU-a-1": "Xid 79"})),
        node("b", gpus_of("b", 16)),
        node("c"),
        held("train", "GPU-a-0", 30, 4, "team"),
        held("hidden", "GPU-a-0", 50, 8, "secret-project"),
        held("hidden-2", "GPU-b-0", 90, 8, "secret-project"),
        pod("waits", container(core=80, memory=16), namespace="team"),
        pod("hidden-3", container(core=80, memory=16), namespace="secret-project", priority=9),
        pod("small", container(core=10, memory=4), namespace="team"),
        pod("wrong", container(core=10, gpu=1), namespace="team"),
        pod("huge", container(core=10, memory=400), namespace="team"),
    )


def shares(view: dict[str, Any]) -> dict[str, list[str]]:
    return {
        gpu["uuid"]: [f"{each['namespace']}/{each['pod']}" for each in gpu["shares"]]
        for node in view["nodes"]
        for gpu in node["gpus"]
    }


def test_viewer_of_all_namespaces_sees_every_share_and_what_is_free(busy: Cluster) -> None:
    view = cluster_view.view(busy, ALL)
    assert shares(view) == {
        "GPU-a-0": ["secret-project/hidden", "team/train"],
        "GPU-a-1": [],
        "GPU-b-0": ["secret-project/hidden-2"],
    }
    gpus = [gpu for node in view["nodes"] for gpu in node["gpus"]]
    assert [(gpu["core_free"], gpu["memory_free_bytes"] // GIB) for gpu in gpus] == [
        (20, 4),
        (100, 16),
        (10, 8),
    ]
    assert [gpu["unusable"] for gpu in gpus] == ["", "Xid 79", ""]
    assert all(not any(gpu["others"].values()) for gpu in gpus)


def test_each_waiting_pod_has_its_reasons_the_highest_priority_first(busy: Cluster) -> None:
    waiting = cluster_view.view(busy, ALL)["waiting"]
    assert [each["pod"] for each in waiting] == ["hidden-3", "huge", "small", "waits", "wrong"]
    by_name = {each["pod"]: each for each in waiting}
    assert by_name["small"]["fits"] == 2
    assert "whole GPUs and shares" in by_name["wrong"]["invalid"]
    assert by_name["waits"]["asked"] == "80 % and 4.0 GiB"
    assert sorted(group["names"] for group in by_name["waits"]["why"]) == [["a"], ["b"]]
    for group in by_name["waits"]["why"]:
        assert group["reason"].startswith("largest free share is")
        assert group["never"] is False
    (never,) = by_name["huge"]["why"]
    assert (never["never"], never["nodes"], never["names"]) == (True, 2, ["a", "b"])


@pytest.mark.parametrize("sight", [TEAM, TEAM_ONLY], ids=["with nodes", "without nodes"])
def test_viewer_of_one_namespace_sees_no_name_of_another(busy: Cluster, sight: Sight) -> None:
    busy.quota.trouble = "gpu_quota: namespace secret-project: no number"
    view = cluster_view.view(busy, sight)
    assert {name for names in shares(view).values() for name in names} == {"team/train"}
    assert [each["pod"] for each in view["waiting"]] == ["huge", "small", "waits", "wrong"]
    text = json.dumps(view) + cluster_page.render(view).decode()
    assert "secret" not in text and "hidden-" not in text and "/hidden" not in text
    assert view["quota_trouble"] == "quotas cannot be read"


def test_viewer_with_nodes_sees_what_others_hold_as_a_sum(busy: Cluster) -> None:
    view = cluster_view.view(busy, TEAM)
    others = [gpu["others"] for node in view["nodes"] for gpu in node["gpus"]]
    assert [(each["core_percent"], each["memory_bytes"] // GIB) for each in others] == [
        (50, 8),
        (0, 0),
        (90, 8),
    ]


def test_viewer_without_nodes_sees_only_gpus_of_its_own_pods(busy: Cluster) -> None:
    view = cluster_view.view(busy, TEAM_ONLY)
    assert shares(view) == {"GPU-a-0": ["team/train"]}
    (gpu,) = view["nodes"][0]["gpus"]
    assert not {"others", "core_free", "memory_free_bytes", "held"} & gpu.keys()
    assert all(group["names"] == [] for each in view["waiting"] for group in each["why"])
    assert cluster_view.view(busy, Sight("empty", False))["nodes"] == []


def test_many_nodes_come_in_parts_that_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "MOST_NODES", 2)
    made = cluster(*[node(name, gpus_of(name, 16)) for name in "edcba"])
    seen, after = [], ""
    while True:
        view = cluster_view.view(made, ALL, after)
        seen.append([each["name"] for each in view["nodes"]])
        if not (after := view["next"]):
            break
        assert f'<a href="?after={after}">More nodes</a>' in cluster_page.render(view).decode()
    assert seen == [["a", "b"], ["c", "d"], ["e"]]


def test_reasons_that_take_too_long_are_left_out(
    busy: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_view, "REASONS_SECONDS", 0)
    view = cluster_view.view(busy, ALL)
    assert [(each["judged"], each["of"], each["why"]) for each in view["waiting"]] == [
        (0, 2, [])
    ] * 5
    text = ParsedPage(cluster_page.render(view)).text()
    assert text.count("not looked for: too many pods wait") == 4
    assert "whole GPUs and shares of GPUs at once" in text


def test_pod_with_several_parts_is_judged_on_some_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_view, "MOST_NODES_ONE_BY_ONE", 3)
    two = pod("two", container("a", core=90), container("b", core=90))
    made = cluster(*[node(name, gpus_of(name, 16)) for name in "abcde"], two)
    view = cluster_view.view(made, ALL)
    (waits,) = view["waiting"]
    assert (waits["judged"], waits["of"], waits["fits"]) == (3, 5, 0)
    assert sum(group["nodes"] for group in waits["why"]) == 3
    assert "3 of 5 nodes were looked at" in ParsedPage(cluster_page.render(view)).text()


def test_page_says_in_words_what_the_view_has(busy: Cluster) -> None:
    text = ParsedPage(cluster_page.render(cluster_view.view(busy, TEAM))).text()
    assert "vcuda in namespace team" in text
    assert "2 nodes, 3 GPUs, 1 share, 4 pods wait" in text
    assert "team/small 10 % and 1.0 GiB - 2 nodes have room" in text
    assert "a, b: never : its GPUs never have 10 % and 100.0 GiB" in text
    assert "GPU 0 · Soft GPU-a-0 Compute 20 % free Memory 4.0 GiB free of 16.0 GiB" in text
    assert "team/train 30 % 4.0 GiB others 50 % 8.0 GiB" in text


def test_page_escapes_names_and_loads_nothing() -> None:
    made = cluster(node("a", gpus_of("a", 16, model=EVIL)), held(EVIL, "GPU-a-0", 30, 4, EVIL))
    text = cluster_page.render(cluster_view.view(made, ALL)).decode()
    text += cluster_page.refusal(EVIL, EVIL).decode()
    tags = ParsedPage(text.encode()).tags
    assert not any(tag == "img" or key.startswith("on") for tag, its in tags for key in its)
    assert sum(tag == "script" for tag, _ in tags) == 2
    assert 'href="/' not in text and "src=" not in text.replace("&lt;img src=x", "")
    policy = dict(page_frame.headers("'self'"))["Content-Security-Policy"]
    assert "form-action 'self'" in policy and "unsafe" not in policy
    assert all("scope" in its for tag, its in tags if tag == "th")


@pytest.fixture
def claimed() -> tuple[Cluster, Claims]:
    """Node node-1 with a GPU in two claims' hands, and a claim that waits, in two namespaces."""
    claims = Claims()
    claims.slices.put(slice_of({"GPU-a": 16}))
    for made, namespace in (
        (claim("a", result("GPU-a", "30", "4Gi")), "team"),
        (claim("b", result("GPU-a", "50", "8Gi")), "secret-project"),
        (waiting("c", cores="40", memory="1Gi"), "team"),
        (waiting("d", "mig.gpu.vcuda.io"), "secret-project"),
    ):
        made["metadata"]["namespace"] = namespace
        claims.claims.put(made)
    gpus = NodeGpus([Gpu("GPU-a", 0, -1, 16 * GIB, "Soft")])
    return cluster(node("node-1", gpus), node("node-2", gpus_of("b", 16))), claims


WITH_CLAIMS = Sight("team", True, True)


def test_claims_are_shares_and_waiting_rows_with_amounts(claimed: Any) -> None:
    made, claims = claimed
    assert claims.trouble
    claims.claims.keep({*"abcd"}, 0)
    claims.slices.keep({"slice-node-1"}, 0)
    view = cluster_view.view(made, Sight("", True, True), "", claims)
    gpu = view["nodes"][0]["gpus"][0]
    assert (gpu["core_free"], gpu["memory_free_bytes"], gpu["held"]) == (20, 4 * GIB, True)
    assert [(each["pod"], each["claim"]) for each in gpu["shares"]] == [
        ("pod-a", "claim-a"),
        ("pod-b", "claim-b"),
    ]
    mig, shared = view["waiting"]
    assert (mig["pod"], mig["note"]) == ("pod-d", "claims for GPU instances are not judged here")
    assert (shared["pod"], shared["asked"], view["waiting_count"]) == (
        "pod-c",
        "40 % and 1.0 GiB",
        2,
    )
    (group,) = shared["why"]
    assert (
        group["reason"] == "largest free share is 20 % and 4.0 GiB on GPU-a; 40 % and 1.0 GiB asked"
    )
    page = cluster_page.render(view)
    assert b'<td class="notes">claims for GPU instances are not judged here' in page
    text = ParsedPage(page).text()
    assert "team/pod-c claim claim-c 40 % and 1.0 GiB - node-1: largest free share is 20 %" in text
    assert "team/pod-a claim claim-a 30 % 4.0 GiB" in text and "not shown" not in text


def test_node_that_offers_by_dra_has_no_room_for_resources(claimed: Any) -> None:
    made, claims = claimed
    made.put_pod(facts(pod("old", container(core=40, memory=200), namespace="team")))
    (waits, *_) = cluster_view.view(made, Sight("", True, True), "", claims)["waiting"]
    assert (waits["pod"], waits["fits"], waits["judged"], waits["of"]) == ("old", 0, 2, 2)
    assert {group["reason"]: group["names"] for group in waits["why"]} == {
        "its GPUs are for claims, by DRA": ["node-1"],
        "its GPUs never have 40 % and 50.0 GiB: the largest of 1 has 16.0 GiB": ["node-2"],
    }


@pytest.mark.parametrize("sight", [WITH_CLAIMS, WITH_CLAIMS._replace(nodes=False)])
def test_viewer_of_one_namespace_sees_its_claims_and_a_sum(claimed: Any, sight: Sight) -> None:
    made, claims = claimed
    view = cluster_view.view(made, sight, "", claims)
    (gpu,) = view["nodes"][0]["gpus"]
    assert [each["claim"] for each in gpu["shares"]] == ["claim-a"]
    assert gpu.get("others", {"core_percent": 50})["core_percent"] == 50
    assert [each["claim"] for each in view["waiting"]] == ["claim-c"]
    text = json.dumps(view) + cluster_page.render(view).decode()
    assert "secret" not in text and "claim-b" not in text and "pod-d" not in text
    assert "claims are not shown: the API server has not listed them yet" in text


def test_viewer_without_the_right_sees_claims_only_in_the_sum(claimed: Any) -> None:
    made, claims = claimed
    view = cluster_view.view(made, TEAM, "", claims)
    (gpu,) = view["nodes"][0]["gpus"]
    assert (gpu["shares"], view["waiting"]) == ([], [])
    assert gpu["others"] == {"core_percent": 80, "memory_bytes": 12 * GIB}
    assert cluster_view.view(made, TEAM_ONLY, "", claims)["nodes"] == []


def test_claim_that_ends_and_an_older_pool_are_not_shown(claimed: Any) -> None:
    made, claims = claimed
    newer = slice_of({"GPU-a": 16})
    newer["metadata"]["uid"], newer["spec"]["pool"] = "newer", {"generation": 2}
    claims.slices.put(newer)
    assert len(claims.read()[1]) == 1
    claims.claims.drop("a")
    claims.claims.put(claim("b", {**result("GPU-a"), "driver": "gpu.nvidia.com"}))
    claims.slices.drop("newer")
    view = cluster_view.view(made, Sight("", True, True), "", claims)
    assert all(gpu["core_free"] == 100 for node in view["nodes"] for gpu in node["gpus"])


def test_instances_of_claims_count_as_their_part_of_the_gpu() -> None:
    claims, gpu = Claims(), Gpu("GPU-m", 0, -1, 80 * GIB, "H100", divided=True)
    seen = Inventory([gpu], profiles={"GPU-m": profiles()})
    offered, _ = partitions.partitioned(devices.devices(seen, Rules()), seen)
    slice = slice_of({"GPU-m": 80})
    slice["spec"]["devices"] = offered
    claims.slices.put(slice)
    for uid, start in ("a", 0), ("b", 1):
        place = result("GPU-m", None, None, device=f"gpu-m-1g-10gb-{start}")
        del place["consumedCapacity"]  # of devices that are allocated once there is none
        claims.claims.put(claim(uid, place))
    reported = NodeGpus([gpu], profiles={"GPU-m": profiles()})
    view = cluster_view.view(cluster(node("node-1", reported)), WITH_CLAIMS, "", claims)
    (shown,) = view["nodes"][0]["gpus"]
    size = 9984 << 20
    assert (shown["core_free"], shown["memory_free_bytes"]) == (100 - 28, 80 * GIB - 2 * size)
    assert shown["unusable"] == ""
