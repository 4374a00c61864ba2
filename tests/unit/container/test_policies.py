"""The parameters of each policy, their meaning, and refused ones."""

from __future__ import annotations

from typing import Any

import pytest

from support.ledger.samples import GIB, gpus, record
from unit.container.test_request import annotated, refusal, with_env
from vcuda_oci.container import request
from vcuda_oci.container.container import container_of
from vcuda_oci.model import allocation
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.request import Request
from vcuda_oci.pages import layout, limits, page_reader
from vcuda_oci.placement.choose import Chosen, choose
from vcuda_oci.placement.rules import Rules

WHOLE = GpuShare("GPU-0", 16 * GIB, 100)


def placed(spec: Any) -> list[GpuShare]:
    """The shares that a request gets on two free GPUs of 16 GiB."""
    raw = request.find(container_of(spec))
    assert raw
    answer = choose(gpus(16, 16), [], request.parse(raw), Rules())
    assert isinstance(answer, Chosen)
    return answer.shares


def share(core: int, *terms: Any, uuid: str = "GPU-0") -> GpuShare:
    return GpuShare(uuid, 16 * GIB * core // 100, core, *terms)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (annotated(core="30"), [share(30, "fixed", 30, 30, 0)]),
        (annotated(core="30", policy="elastic"), [share(30, "elastic", 100, 30, 0)]),
        (
            annotated(core="30", policy="elastic", core_limit="60", priority="7"),
            [share(30, "elastic", 60, 30, 7)],
        ),
        (annotated(core="30", policy="weighted"), [share(30, "weighted", 100, 100, 0)]),
        (
            annotated(core="30", policy="weighted", weight="10000", priority="1000"),
            [share(30, "weighted", 100, 10_000, 1000)],
        ),
        (annotated(core="30", policy="best-effort"), [share(30, "best-effort", 100, 30, 0)]),
        (
            with_env("VCUDA_CORE=30", "VCUDA_POLICY=elastic", "VCUDA_CORE_LIMIT=40"),
            [share(30, "elastic", 40, 30, 0)],
        ),
        (
            with_env(
                "VCUDA_CORE=30", "VCUDA_POLICY=weighted", "VCUDA_WEIGHT=5", "VCUDA_PRIORITY=2"
            ),
            [share(30, "weighted", 100, 5, 2)],
        ),
        (
            annotated(core="30", latency="low"),
            [share(30, "fixed", 30, 30, 0, False, "low")],
        ),
        (
            with_env("VCUDA_CORE=30", "VCUDA_POLICY=weighted", "VCUDA_LATENCY=low"),
            [share(30, "weighted", 100, 100, 0, False, "low")],
        ),
        # A ceiling above the reserved core is elastic, unless another policy is named.
        (with_env("VCUDA_CORE=30", "VCUDA_CORE_LIMIT=60"), [share(30, "elastic", 60, 30, 0)]),
        (annotated(core="30", latency="normal"), [share(30, "fixed", 30, 30, 0)]),
        (annotated(core="100", latency="low"), [WHOLE]),
        # A whole GPU has one owner: the policy is the fraction's.
        (annotated(core="100", policy="best-effort"), [WHOLE]),
        (annotated(core="100", policy="elastic", core_limit="100"), [WHOLE]),
        (
            annotated(core="150", policy="elastic", core_limit="80"),
            [WHOLE, share(50, "elastic", 80, 50, 0, uuid="GPU-1")],
        ),
    ],
)
def test_a_policy_is_the_share_of_the_part_that_others_share(
    spec: Any, expected: list[GpuShare]
) -> None:
    assert placed(spec) == expected


RANGE = "annotations: {} cannot be '{}'; write a whole number from {} to {}"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            annotated(core="1", policy="greedy"),
            "annotations: policy 'greedy' is not offered; "
            "use fixed, elastic, weighted, best-effort or rotate",
        ),
        (
            annotated(core="1", weight="2"),
            "annotations: weight means nothing with policy fixed; leave it out, or use weighted",
        ),
        (
            annotated(core="1", core_limit="50", policy="weighted"),
            "annotations: core-limit means nothing with policy weighted; "
            "leave it out, or use elastic",
        ),
        (
            annotated(core="1", priority="1", policy="best-effort"),
            "annotations: priority means nothing with policy best-effort; "
            "leave it out, or use elastic or weighted",
        ),
        *(
            (
                annotated(core="150", policy="elastic", core_limit=text),
                RANGE.format("core-limit", text, 50, 100),
            )
            for text in ("49", "101", "", "x", "-60", "60.5", "\u0666\u0660", "9" * 500)
        ),
        (
            annotated(core="200", policy="elastic", core_limit="99"),
            RANGE.format("core-limit", "99", 100, 100),
        ),
        *(
            (
                annotated(core="1", policy="weighted", weight=text),
                RANGE.format("weight", text, 1, 10000),
            )
            for text in ("0", "10001", "1e2")
        ),
        (
            annotated(core="1", policy="elastic", priority="1001"),
            RANGE.format("priority", "1001", 0, 1000),
        ),
        *(
            (
                annotated(core="1", latency=text),
                f"annotations: latency cannot be '{text}'; use normal or low",
            )
            for text in ("", "LOW", "0", "5ms")
        ),
        (
            with_env("VCUDA_CORE=1", "VCUDA_WEIGHT=2"),
            "env: weight means nothing with policy fixed; leave it out, or use weighted",
        ),
    ],
)
def test_parameter_invalid_for_its_policy_is_one_line(spec: Any, message: str) -> None:
    assert refusal(spec) == message


def test_the_limits_page_has_the_policy_and_grants_the_reserved_share() -> None:
    shares = [
        share(100),
        share(30, "elastic", 60, 30, 7),
        share(20, "weighted", 100, 500, 0),
        share(10, "best-effort", 100, 10, 0),
        share(10, "fixed", 10, 10, 0, False, "low"),
    ]
    page = page_reader.read_limits(limits.page_of(record(shares=shares)))
    assert page.rate_until_ns == 0
    assert [
        (gpu.core_percent, gpu.core_ceiling_percent, gpu.policy, gpu.rate_ppm, gpu.weight)
        for gpu in page.gpus
    ] == [
        (100, 100, layout.POLICY_FIXED, 1_000_000, 100),
        (30, 60, layout.POLICY_ELASTIC, 300_000, 30),
        (20, 100, layout.POLICY_WEIGHTED, 200_000, 500),
        (10, 100, layout.POLICY_BEST_EFFORT, 100_000, 10),
        (10, 10, layout.POLICY_FIXED, 100_000, 10),
    ]
    assert [gpu.latency for gpu in page.gpus] == [0, 0, 0, 0, layout.LATENCY_LOW]


OLD_RECORD = (
    '{"version": 1, "id": "box", "shares": [{"uuid": "GPU-0", "memory_bytes": 1, '
    '"core_percent": 30}], "request": {"core": 30, "memory_bytes": 1, "gpus": [], '
    '"policy": "fixed", "placement": ""}, "container_id": "box", "runtime": ["/runc"], '
    '"claimant": [1, 1], "created": 1.5, "pod": {}}'
)


def test_a_record_of_version_0_1_is_read_and_known_as_the_same_request() -> None:
    old = allocation.parse(OLD_RECORD)
    assert old.shares == [GpuShare("GPU-0", 1, 30, "fixed", 30, 30, 0)]
    assert old.request == Request.of(30, 1).as_json()


def test_a_request_under_another_policy_is_another_request() -> None:
    def as_json(**words: str) -> Any:
        raw = request.find(container_of(annotated(core="30", **words)))
        assert raw
        return request.parse(raw).as_json()

    asked = [
        as_json(),
        as_json(policy="elastic"),
        as_json(policy="elastic", core_limit="60"),
        as_json(policy="elastic", priority="1"),
        as_json(policy="weighted"),
        as_json(policy="weighted", weight="7"),
        as_json(policy="best-effort"),
        as_json(latency="low"),
        as_json(idle_suspend="10m"),
        as_json(idle_suspend="never"),
    ]
    assert as_json(latency="normal") == as_json()
    assert all(asked[i] != asked[j] for i in range(len(asked)) for j in range(i))
    assert as_json(policy="elastic", core_limit="100", priority="0") == as_json(policy="elastic")
