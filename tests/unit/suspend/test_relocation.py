"""Which containers can be moved where, and what they hold of the GPUs meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.ledger.samples import GIB, host, record
from vcuda_hook.suspend import relocation
from vcuda_oci.host.host import Host
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import allocation
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.suspension import RESUMING, SUSPENDED, SUSPENDING, WAITING, Suspension
from vcuda_oci.pages import limits
from vcuda_oci.placement import eligible
from vcuda_oci.placement.rules import Rules

MOVES = {"GPU-0": "GPU-1"}


def share(gpu: str = "GPU-0", memory: int = 8, core: int = 50, **more: Any) -> GpuShare:
    return GpuShare(gpu, memory * GIB, core, **more)


def moving(step: str) -> Any:
    held = Suspension(step, "order", 1, {}, moves={} if step == SUSPENDED else MOVES)
    return record("a", shares=[share()], suspension=held)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (SUSPENDING, ["GPU-0", "GPU-1"]),
        (RESUMING, ["GPU-1"]),
        (WAITING, []),
        (SUSPENDED, []),
    ],
)
def test_both_shares_are_taken_until_the_container_has_left(step: str, expected: list[str]) -> None:
    mine = moving(step)
    assert [one.uuid for one in mine.resident] == expected
    assert allocation.parse(mine.dump()) == mine


def test_a_record_names_moves_only_during_a_move() -> None:
    assert "moves" not in moving(SUSPENDED).dump()
    assert "moves" in moving(SUSPENDING).dump()


@pytest.mark.parametrize(
    ("mine", "to", "expected"),
    [
        (record("a", shares=[share()]), {}, None),
        (record("a", shares=[share(), share("GPU-1")]), {}, "has shares of several GPUs"),
        (record("a", shares=[share()], pod={"uid": "1"}), {}, "belongs to a pod"),
        (record("a", shares=[share()], pod={"uid": "1", "placed": "node"}), {}, None),
        (record("a", shares=[share(rotates=True)]), {}, "rotates on its GPU"),
        (record("a", shares=[share()], runtime=[]), {}, "is a named slice"),
        (record("a", shares=[share()], becoming=[share(core=9)]), {}, "its share is being changed"),
        (record("a", shares=[share()]), {"model": "other"}, "GPU-1 is other"),
        (record("a", shares=[share()]), {"divided": True}, "MIG devices cannot be moved"),
    ],
)
def test_refusals_say_what_excludes_a_move(
    mine: Any, to: dict[str, Any], expected: str | None
) -> None:
    facts = host(16, 16)
    facts.version = "580.95.05"
    there = Gpu(**{**_fields(facts.gpus[1]), **to})
    refused = relocation.refusal(mine, facts, there)
    assert (refused[0][: len(expected or "")] if refused else None) == expected


def test_driver_before_580_and_unknown_gpus_are_refused() -> None:
    facts = host(16, 16)
    facts.version = "575.57.08"
    mine = record("a", shares=[share()])
    with pytest.raises(VcudaError, match="cannot move programs"):
        relocation.moves_to(mine, facts, "1")
    with pytest.raises(VcudaError, match="is not in this machine"):
        relocation.moves_to(mine, facts, "7")
    facts.version = "580.95.05"
    assert relocation.moves_to(mine, facts, "1") == MOVES
    assert relocation.moves_to(mine, facts, "GPU-0") == {}


def test_room_on_the_new_gpu_counts_what_others_hold_there() -> None:
    facts, mine = host(16, 16), record("a", shares=[share()])
    there = record("b", shares=[share("GPU-1", 8, 50)])
    assert relocation.room(mine, [mine, there], facts.gpus, MOVES, Rules()) is None
    more = record("c", shares=[share("GPU-1", 1, 10)])
    refused = relocation.room(mine, [mine, there, more], facts.gpus, MOVES, Rules())
    assert refused
    assert refused.reason == "40 % and 7.0 GiB of GPU-1 are free; 50 % and 8.0 GiB are needed"


def _fields(gpu: Gpu) -> dict[str, Any]:
    return dict(vars(gpu))


def test_no_container_moves_to_a_gpu_of_containers_under_mps(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    there = record("mps", shares=[share("GPU-1")], isolation="mps")
    with ledger:
        ledger.write(there, limits.page_of(there))
    closed = relocation.closed(ledger)
    assert closed == {"GPU-1": eligible.MPS_THERE}
    gpus = [Gpu(f"GPU-{at}", at, at, 16 * GIB, "A100", f"0000:0{at}:00.0") for at in range(2)]
    facts = Host("", "580.1", "", gpus)
    with pytest.raises(VcudaError, match="GPU-1: its containers are under MPS"):
        relocation.moves_to(record("a", shares=[share()]), facts, "1", closed)
