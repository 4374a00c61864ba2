"""GPUs that one way does not offer while the other has shares there."""

from __future__ import annotations

import pytest

from support.ledger.samples import GIB
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_plugin.agent.dra.withheld import OF_CLAIMS, OF_PLUGIN, withheld


def record(id: str, *uuids: str, pod: bool = True) -> Allocation:
    shares = [GpuShare(uuid, GIB, 30) for uuid in uuids]
    return Allocation(id, shares, {}, "", [], [1, 1], 0.0, {"name": "a"} if pod else {})


@pytest.mark.parametrize(
    ("by_dra", "expected"),
    [(True, {"b": OF_PLUGIN, "c": OF_PLUGIN}), (False, {"a": OF_CLAIMS, "b": OF_CLAIMS})],
)
def test_gpus_with_shares_of_the_other_way_are_withheld(
    by_dra: bool, expected: dict[str, str]
) -> None:
    records = [record("dra@x", "a", "b"), record("pod-y.main", "b", "c")]
    records.append(record("run", "d", pod=False))
    assert withheld(records, by_dra) == expected


def test_gpu_with_an_instance_of_the_other_way_is_withheld() -> None:
    found = withheld([record("pod-y.main", "MIG-a")], True, {"MIG-a": "GPU-a", "MIG-b": "GPU-b"})
    assert found == {"MIG-a": OF_PLUGIN, "GPU-a": OF_PLUGIN}
