"""The cost of a cycle of cuMemCreate, cuMemMap, cuMemUnmap and cuMemRelease."""

from __future__ import annotations

import re

from support.gpu.guest import GIB

CYCLES = 1000
FEW, MANY = 100, 40_000


def test_a_cycle_costs_as_much_with_many_blocks_as_with_few(new_mock_guest, client):
    guest = new_mock_guest(GIB)

    def instructions(live: int, cycles: int) -> int:
        callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        process = guest.start(*callgrind, client("blocks"), str(live), str(cycles))
        err = process.communicate(timeout=300)[1]
        assert process.returncode == 0, err
        counted = re.search(r"Collected : (\d+)", err)
        assert counted, err
        return int(counted[1])

    def of_a_cycle(live: int) -> float:
        return (instructions(live, CYCLES) - instructions(live, 0)) / CYCLES

    assert of_a_cycle(MANY) < 2 * of_a_cycle(FEW)
