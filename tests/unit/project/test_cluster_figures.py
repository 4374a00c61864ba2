"""What the programs that measure on a real cluster conclude from what they see."""

from __future__ import annotations

import json

import pytest

from cluster.measure import rate, soak
from support.product import MIB

UUID, DEVICE = "GPU-5F1C", "gpu-5f1c"


def test_rate_leaves_the_first_tenth_out() -> None:
    # The first tenth of 20 comes at once, then 18 come in 9 seconds.
    times = [0.0, 0.0, *(0.5 * number for number in range(1, 19))]
    assert rate.rate_of(times) == 2.0


def test_table_has_medians_and_ratios_to_kube_scheduler_alone() -> None:
    def rounds(*rates: float) -> list[rate.Round]:
        return [{"pods_a_second": each} for each in rates]

    ways = {"none": rounds(50, 100, 60), "extender": rounds(90, 10, 54)}
    rows = [{"nodes": 100, "calls": 50, "rounds": ways}]
    assert rate.table(rows) == "100 nodes, 50 calls a second: none 60 (1.00), extender 54 (0.90)"


def seen(memory_bytes: int = soak.MEMORY_MIB * MIB, count: int = 1) -> list[str]:
    gpus = [{"uuid": UUID, "total_bytes": memory_bytes}] * count
    return ["nvidia0", json.dumps({"devices": gpus})]


def test_pod_that_saw_its_claims_gpu_is_right() -> None:
    assert soak.fault_of(seen(), {DEVICE}) == ""


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        ([], {DEVICE}),
        (["nvidia0", *seen()], {DEVICE}),
        (seen(), set()),
        (seen(), {"gpu-other"}),
        (seen(16 * MIB), {DEVICE}),
        (seen(count=2), {DEVICE}),
        (seen(), {DEVICE, "gpu-other"}),
    ],
    ids=[
        "nothing written",
        "two device nodes",
        "claim never seen",
        "another GPU",
        "another size",
        "two GPUs",
        "claim of two GPUs",
    ],
)
def test_pod_that_saw_anything_else_is_wrong(lines: list[str], gpus: set[str]) -> None:
    assert soak.fault_of(lines, gpus) != ""
