"""Topologies of GPUs: distances and links between each two."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from vcuda_oci.model import topology

# A PCIe switch, a NUMA node and the system.
SWITCH, NODE, SYSTEM = 200, 500, 600
PAIR, ISLAND = 35, 36


def islands() -> list[list[int]]:
    """Eight GPUs in two NVLink islands; the two GPUs of a PCIe switch share two links."""
    eight = range(8)
    links = [
        [0 if a == b or a // 4 != b // 4 else 2 if a // 2 == b // 2 else 1 for b in eight]
        for a in eight
    ]
    levels: list[list[int | None]] = [
        [10 if a // 2 == b // 2 else 40 if a // 4 == b // 4 else 50 for b in eight] for a in eight
    ]
    found = topology.distances(links, levels)
    assert found is not None
    return found


@st.composite
def matrices(draw: Any, count: int) -> list[list[int]]:
    """Distances between `count` GPUs, with few different values, so that many sets are equal."""
    found = [[0] * count for _ in range(count)]
    for a in range(count):
        for b in range(a):
            found[a][b] = found[b][a] = draw(st.sampled_from([19, PAIR, SWITCH, NODE, SYSTEM]))
    return found
