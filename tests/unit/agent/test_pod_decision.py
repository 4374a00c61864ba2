"""The decision in a pod's object, whatever its author wrote there."""

from __future__ import annotations

import importlib.util
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_oci.ledger import decision
from vcuda_oci.ledger.decision import Amounts
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Part
from vcuda_plugin.agent.pods.pod_decision import of_pod
from vcuda_plugin.agent.pods.pod_watch_child import Cluster

UID = "01234567-89ab-4def-8123-456789abcdef"
CORE, GPU = "tencent.com/vcuda-core", "nvidia.com/gpu"
MIB = 1 << 20
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OWNERS = (
    st.lists(
        st.fixed_dictionaries(
            {"controller": st.booleans() | JSON, "kind": st.text() | JSON, "name": st.text() | JSON}
        )
        | JSON
    )
    | JSON
)
KEYS = st.sampled_from(
    [
        "vcuda.io/placement-decision", "vcuda.io/policy", "tencent.com/predicate-node",
        "kubernetes.io/config.mirror", "tencent.com/vcuda-core-limit",
    ]
)  # fmt: skip
AMOUNTS = st.dictionaries(
    st.sampled_from([CORE, GPU, GPU + "mem", GPU + "mem-percentage", GPU + "cores"]),
    st.integers(-1, 200) | st.integers().map(str) | JSON,
)
RESOURCES = st.fixed_dictionaries({"limits": AMOUNTS}) | JSON
CONTAINER = st.fixed_dictionaries({"name": st.just("main"), "resources": RESOURCES}) | JSON


@given(
    st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries(
                {
                    "uid": st.just(UID) | JSON,
                    "annotations": st.dictionaries(KEYS, JSON) | JSON,
                    "ownerReferences": OWNERS,
                    "labels": JSON,
                }
            ),
            "spec": st.fixed_dictionaries(
                {"nodeName": st.just("n"), "containers": st.lists(CONTAINER, max_size=3) | JSON}
            ),
            "status": JSON,
        }
    )
)
def test_no_pod_raises_and_what_is_kept_of_it_can_be_read_again(pod: dict[str, Any]) -> None:
    asking = {"name": "asks", "resources": {"limits": {CORE: "1"}}}
    spec = pod["spec"]
    spec["containers"] = [asking, *(spec["containers"] or [])] if _is_list(spec) else [asking]
    found = of_pod(pod, "n", {CORE}, GPU)
    if found is not None:
        assert set(found.uid) <= set("0123456789abcdef-")
        text = found.decision.dump()
        assert len(text) < 10_000
        assert decision.parse(text).__dict__ == found.decision.__dict__


def test_a_resource_counts_where_it_is_requested_and_where_it_is_limited() -> None:
    def asks(**resources: Any) -> bool:
        spec = {"nodeName": "n", "containers": [{"name": "main", "resources": resources}]}
        return of_pod({"metadata": {"uid": UID}, "spec": spec}, "n", {CORE}) is not None

    assert [asks(limits={CORE: "1"}), asks(requests={CORE: 1}), asks(limits={"cpu": 1})] == [
        True,
        True,
        False,
    ]


def asking(**containers: dict[str, object]) -> dict[str, Any]:
    listed = [
        {
            "name": name,
            "resources": {"limits": {GPU + key: much for key, much in each.items()}},
        }
        for name, each in containers.items()
    ]
    return {"metadata": {"uid": UID}, "spec": {"nodeName": "n", "containers": listed}}


def test_amounts_are_kept_by_container_and_a_nonsensical_one_affects_no_other() -> None:
    pod = asking(
        parts={"": 2, "mem": "3k", "cores": 30},
        percent={"": "1", "mem-percentage": 50},
        whole={"": 3},
        wrong={"": 1, "cores": 101},
    )
    found = of_pod(pod, "n", {GPU}, GPU)
    assert found is not None
    assert found.complaint == "container wrong: more than 100 % of a GPU"
    assert decision.parse(found.decision.dump()).amounts == {
        "parts": Amounts((Part(30, 3000 * MIB),) * 2),
        "percent": Amounts((Part(1, None, 50),), any_core=True),
        "whole": Amounts((Part(300),)),
    }
    # It omits resources that the kubelet counts itself.
    parsed = of_pod(pod, "n", {GPU})
    assert parsed is not None and parsed.decision.amounts == {}


def test_a_pods_author_who_writes_amounts_writes_none() -> None:
    pod = asking(main={"": 1, "cores": 10})
    forged: dict[str, Any] = {"containers": {}, "amounts": {"main": {"parts": [[100, None, None]]}}}
    forged["amounts"]["main"]["any_core"] = False
    pod["metadata"]["annotations"] = {"vcuda.io/placement-decision": json.dumps(forged)}
    found = of_pod(pod, "n", {GPU}, GPU)
    assert found is not None and found.complaint == ""
    assert found.decision.amounts == {"main": Amounts((Part(10, None, 100),))}


def test_agent_without_a_kubernetes_client_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    names = {"core_resource": CORE, "memory_resource": "", "gpu_resource": "", "path": "/c"}
    settings: Any = SimpleNamespace(
        state_dir="/nowhere", memory_overcommit=1, kubernetes="auto", by_dra=False, **names
    )
    with pytest.raises(VcudaError, match=r"no module kubernetes; run .* or set kubernetes = "):
        Cluster(settings, "/etc/kubeconfig", "")


def _is_list(spec: dict[str, Any]) -> bool:
    return isinstance(spec["containers"], list)
