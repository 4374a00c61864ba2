"""MIG devices are placed as small GPUs; their parent GPU is not placed."""

from __future__ import annotations

import pytest

from support.ledger.samples import GIB, gpus
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Request
from vcuda_oci.placement.choose import Refused, choose
from vcuda_oci.placement.rules import Rules


def machine(*, whole: int = 1) -> list[Gpu]:
    """GPU 0 in MIG mode with devices of 4 and 8 GiB, and whole ones of 16 GiB."""
    divided, *others = gpus(*[16] * (1 + whole))
    divided.divided = True
    parts = [
        Gpu(f"MIG-{number}", 0, 0, gib * GIB, "Soft", parent=divided.uuid, mig=[number, 7, 0])
        for number, gib in enumerate((4, 8))
    ]
    return [divided, *parts, *others]


def given(
    request: Request,
    *taken: GpuShare,
    whole: int = 1,
    order: str = "binpack",
    sick: dict[str, str] | None = None,
) -> list[tuple[str, int, float]] | str:
    """The shares as UUID, core percents and GiB, or the refusal."""
    answer = choose(machine(whole=whole), taken, request, Rules(order), unhealthy=sick)
    if isinstance(answer, Refused):
        return f"{answer.reason}; {answer.hint}"
    return [(one.uuid, one.core_percent, one.memory_bytes / GIB) for one in answer.shares]


WHOLE, FIRST, SECOND = ("GPU-1", 100, 16), ("MIG-0", 100, 4), ("MIG-1", 100, 8)
MEND = "name MIG devices of it, or ask for less or another"


@pytest.mark.parametrize(
    ("request_", "shares"),
    [
        (Request.of(30), [("MIG-0", 30, 1.2)]),
        (Request.of(30, 5 * GIB), [("MIG-1", 30, 5)]),
        (Request.of(30, 9 * GIB), [("GPU-1", 30, 9)]),
        (Request.of(100), [WHOLE]),
        (Request.of(100, gpus=("0",)), [FIRST]),
        (Request.of(100, 5 * GIB, gpus=("GPU-0",)), [SECOND]),
        (Request.of(30, gpus=("0:1",)), [("MIG-1", 30, 2.4)]),
        (Request.of(0, gpus=("MIG-1",)), [SECOND]),
        (Request.of(0, gpus=("0",)), [FIRST, SECOND]),
        (Request.of(0, gpus=("all",)), [FIRST, SECOND, WHOLE]),
    ],
    ids=["part", "part that fits the other", "part too large for both", "whole", "whole of a GPU",
         "whole with memory", "part of one", "by UUID", "all of a GPU", "all"],
)  # fmt: skip
def test_a_mig_device_is_a_small_gpu_and_its_gpu_stands_for_them(
    request_: Request, shares: list[tuple[str, int, float]]
) -> None:
    found = given(request_)
    assert isinstance(found, list)
    assert [(uuid, core, round(gib, 6)) for uuid, core, gib in found] == shares


def test_whole_gpu_request_takes_a_mig_device_only_without_free_gpus() -> None:
    assert given(Request.of(100), GpuShare("GPU-1", GIB, 10)) == [FIRST]


def test_several_are_never_mig_devices_unless_they_are_named() -> None:
    assert given(Request.of(200)) == (
        f"1 of 3 GPUs are wholly free; 2 asked (GPU-0 is in MIG mode); {MEND}"
    )
    assert given(Request.of(200), whole=2) == [WHOLE, ("GPU-2", 100, 16)]
    assert given(Request.of(200, gpus=("0:0", "0:1"))) == [FIRST, SECOND]


def test_the_emptiest_is_not_a_mig_device_while_a_gpu_is_as_empty() -> None:
    assert given(Request.of(50, GIB), order="spread") == [("GPU-1", 50, 1)]


def test_a_gpus_fault_affects_all_its_mig_devices_and_one_devices_no_other() -> None:
    hint = "reset the GPU, or ask for less or another"
    wanted = Request.of(30, GIB, gpus=("0",))
    assert given(wanted, sick={"GPU-0": "Xid 79"}) == f"GPU-0 is unhealthy: Xid 79; {hint}"
    assert given(wanted, sick={"MIG-0": "Xid 31"}) == [("MIG-1", 30, 1)]


def test_a_gpu_in_mig_mode_without_devices_is_nothing_to_have() -> None:
    divided, other = gpus(16, 16)
    divided.divided = True
    for request, what in (
        (Request.of(100, gpus=("0",)), "GPU-0 is in MIG mode and has no MIG devices; " + MEND),
        (Request.of(0, gpus=("all",)), other.uuid),
    ):
        answer = choose([divided, other], [], request, Rules())
        if isinstance(answer, Refused):
            assert f"{answer.reason}; {answer.hint}" == what
        else:
            assert answer.shares[0].uuid == what
