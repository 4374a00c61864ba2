"""The terms of a pod's shares, from its annotations."""

from __future__ import annotations

import pytest

from vcuda_oci.model.policies import ELASTIC, parse
from vcuda_plugin.kube.pod_terms import words_of

OURS, KUBESHARE_2, KUBESHARE_1 = (
    "tencent.com/vcuda-core-limit", "sharedgpu/gpu_limit", "kubeshare/gpu_limit",
)  # fmt: skip


@pytest.mark.parametrize("name", [KUBESHARE_2, KUBESHARE_1])
@pytest.mark.parametrize(
    ("part", "limit"),
    [
        ("0.6", "60"),
        (".29", "29"),
        ("0.070", "7"),
        ("1", "100"),
        ("1.0", "100"),
        ("2.0", "100"),
        ("0.333", "33"),
    ],
)
def test_kubeshares_maximum_is_the_ceiling_of_an_elastic_share(
    name: str, part: str, limit: str
) -> None:
    terms = parse(words_of({name: part}), 7, "the pod")
    assert (terms.policy, terms.core_limit) == (ELASTIC, int(limit))


@pytest.mark.parametrize("part", ["", ".", "-0.5", "60%", "nan", "1e-1", "\u0660.6"])
def test_kubeshares_invalid_maximum_is_kept_so_that_the_claim_refuses_it(part: str) -> None:
    assert words_of({KUBESHARE_2: part}) == {"core-limit": part}


def test_the_ceiling_of_gpumanager_counts_before_that_of_kubeshare() -> None:
    assert words_of({KUBESHARE_1: "0.9", OURS: "60"}) == {"core-limit": "60"}


def test_a_named_policy_stays() -> None:
    named = {"vcuda.io/policy": "weighted", KUBESHARE_2: "0.6"}
    assert words_of(named) == {"policy": "weighted", "core-limit": "60"}
