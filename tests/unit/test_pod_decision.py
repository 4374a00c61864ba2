"""A pod as the API tells it, whatever its author made of it."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_oci import decision
from vcuda_oci.errors import VcudaError
from vcuda_plugin.cluster import Cluster
from vcuda_plugin.pod_decision import of_pod

UID = "01234567-89ab-4def-8123-456789abcdef"
CORE = "tencent.com/vcuda-core"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(
    [
        *("vcuda.io/placement-decision", "vcuda.io/policy", "tencent.com/predicate-node"),
        *("kubernetes.io/config.mirror", "tencent.com/vcuda-core-limit"),
    ]
)
CONTAINER = st.fixed_dictionaries({"name": st.just("main"), "resources": JSON}) | JSON


@given(
    st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries(
                {"uid": st.just(UID) | JSON, "annotations": st.dictionaries(KEYS, JSON) | JSON}
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
    found = of_pod(pod, "n", {CORE})
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
        *(True, True, False)
    ]


def test_an_agent_in_a_cluster_without_a_client_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    names = {"core_resource": CORE, "memory_resource": "", "gpu_resource": "", "path": "/c"}
    settings: Any = SimpleNamespace(
        state_dir="/nowhere", memory_overcommit=1, kubernetes="auto", **names
    )
    with pytest.raises(VcudaError, match=r"no module kubernetes; run .* or set kubernetes = "):
        Cluster(settings, "/etc/kubeconfig", "")


def _is_list(spec: dict[str, Any]) -> bool:
    return isinstance(spec["containers"], list)
