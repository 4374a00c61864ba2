"""Many equal pods from 32 workers, with processes killed in between.

`make soak-pods` runs ten thousand, without kills.
"""

from __future__ import annotations

import pytest

from support.engines.base import Files
from support.kubelet.pod_lives import DEATHS
from support.kubelet.pod_node import node
from support.waiting import until

PODS = 100
WORKERS = 32


@pytest.mark.timed
@pytest.mark.usefixtures("whole_machine")
@pytest.mark.timeout(1200)
def test_each_of_many_pods_sees_its_own_share_and_none_is_lost_or_doubled(
    files: Files, scratch: str
) -> None:
    with node(files, scratch) as lives:
        lives.run(PODS, WORKERS)
        assert lives.faults == []
        assert sum(lives.deaths.values()) == PODS
        assert set(lives.deaths) == set(DEATHS)
        assert lives.killed > PODS // 50
        assert lives.most_at_once > WORKERS // 2
        # The agent sweeps shares retained for restarts and those that killed hooks left.
        until(lambda: lives.leftovers() == [], seconds=60)
