"""Idle GPUs are not evaluated at each sample, with the same grants as if they were."""

from __future__ import annotations

import os
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from support.agent.arbiter_node import MS, ArbiterNode, elastic, fixed
from vcuda_plugin.agent.compute.container_pages import LEASE_NS

IDS = ["a", "b", "c"]
# Use and waiting of each container between two polls, in ms; {} if all are idle.
DOES = st.dictionaries(st.sampled_from(IDS), st.tuples(st.integers(0, 50), st.booleans()))
LOOKS = st.lists(st.one_of(st.just({}), DOES), min_size=1, max_size=60)


class Used(ArbiterNode):
    """A node with containers that use and wait; `forgets`: nothing is known to be at rest."""

    def __init__(self, folder: str, forgets: bool) -> None:
        super().__init__(folder)
        self.forgets = forgets
        self.add_record("a", elastic(30))
        self.add_record("b", elastic(20), elastic(20, gpu="GPU-1"))
        self.add_record("c", fixed(40, gpu="GPU-1"))
        self.poll()

    def passes(self, does: dict[str, tuple[int, bool]]) -> dict[str, list[int]]:
        for id, (used, waits) in does.items():
            self.uses(id, used * MS)
            if waits:
                self.waits(id)
        if self.forgets:
            self.node._by_gpu = None
            for open_pages in self.node._open.values():
                for demand in open_pages.demands:
                    demand.rests = False
        self.poll()
        return {id: self.rates(id) for id in IDS}


@given(LOOKS)
@settings(max_examples=60)
def test_the_grants_equal_those_of_a_full_evaluation_each_time(looks):
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        short, long = Used(one, forgets=False), Used(other, forgets=True)
        try:
            for does in looks:
                assert short.passes(does) == long.passes(does)
        finally:
            short.node.close()
            long.node.close()


def test_idle_poll_writes_nothing_until_a_grant_needs_renewal(tmp_path):
    arbiter_node = Used(str(tmp_path), forgets=False)
    arbiter_node.passes({"a": (10, True)})
    for _ in range(10):
        arbiter_node.passes({})
    written = 0
    for _ in range(40):
        before = (
            arbiter_node.limits("a").rate_until_ns,
            os.stat(arbiter_node.page("a", "limits")).st_mtime_ns,
        )
        arbiter_node.passes({})
        after = (
            arbiter_node.limits("a").rate_until_ns,
            os.stat(arbiter_node.page("a", "limits")).st_mtime_ns,
        )
        written += before != after
        assert after[0] - arbiter_node.now >= LEASE_NS // 2
    assert 3 <= written <= 5  # in two seconds
    assert arbiter_node.passes({"a": (10, True)})["a"] == [100]
    arbiter_node.node.close()
