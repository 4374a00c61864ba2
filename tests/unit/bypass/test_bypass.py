"""Which processes are found to bypass the shim."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.ledger.samples import GIB
from vcuda_hook.live.driver_figures import Counted
from vcuda_plugin.agent.bypass import detection
from vcuda_plugin.agent.bypass.detection import Finding, Holder, Process, Share, Watch
from vcuda_plugin.agent.bypass.hidden_work import Hidden

MIB = 1 << 20
PERIOD = 2.0
SHARE = Share(4 * GIB, 30, False, 0)
CHARGED = Share(4 * GIB, 30, False, 300 * MIB)


class Node:
    """A watch, the clock, and one container "it" with a share of GPU-0."""

    def __init__(self, share: Share = SHARE) -> None:
        self.watch, self.now = Watch(), 0.0
        self.holders = {"it": Holder("container it", {"GPU-0": share})}

    def look(
        self,
        *processes: Process,
        uuid: str = "GPU-0",
        part: float = 0.0,
        counted: Counted | None = None,
    ) -> list[Finding]:
        """Poll once. counted: the driver's figure of the container's cgroup."""
        self.now += PERIOD
        place = ("it", uuid)
        seen = {place: list(processes)} if processes else {}
        driver = {place: counted} if counted else {}
        return self.watch.update(self.now, self.holders, seen, {place: part}, {}, driver)

    def look_for_hidden(self, hidden: Hidden) -> list[Finding]:
        self.now += PERIOD
        place = ("it", "GPU-0")
        return self.watch.update(
            self.now, self.holders, {place: [process()]}, {}, {place: hidden}, {}
        )

    def looks(
        self, count: int, *processes: Process, uuid: str = "GPU-0", part: float = 0.0
    ) -> list[str]:
        """The reasons of new findings, one poll after the other."""
        return [
            finding.why
            for _ in range(count)
            for finding in self.look(*processes, uuid=uuid, part=part)
            if finding.is_new
        ]


def process(held: int = 0, has_shim: bool = True, pid: int = 7, command: str = "train") -> Process:
    return Process(pid, command, held, has_shim)


def test_memory_above_limit_and_contexts_is_reported_once() -> None:
    node = Node()
    greedy = process(9 * GIB), process(MIB, pid=8, command="feed\n\x1b[31m")
    assert node.looks(detection.REPORT_AFTER_POLLS - 1, *greedy) == []
    assert node.look(*greedy) == [
        Finding(
            "it",
            detection.MEMORY,
            "GPU-0",
            9 * GIB + MIB,
            4 * GIB,
            (7, 8),
            "container it holds 9.00 GiB of GPU-0, its limit is 4.00 GiB: "
            "processes 7 (train), 8 (feed??[31m)",
            True,
        )
    ]
    # The finding persists, and is not reported again.
    assert [(finding.why, finding.is_new) for finding in node.look(*greedy)] == [("memory", False)]
    assert node.looks(50, *greedy) == []


def test_one_deviating_sample_neither_starts_nor_ends_a_finding() -> None:
    node = Node()
    for _ in range(5):
        assert node.looks(detection.REPORT_AFTER_POLLS - 1, process(9 * GIB)) == []
        assert node.looks(1, process(GIB)) == []
    assert node.looks(detection.REPORT_AFTER_POLLS, process(9 * GIB)) == ["memory"]
    node.looks(detection.CLEAR_AFTER_POLLS - 1)
    assert node.looks(10, process(9 * GIB)) == []
    node.looks(detection.CLEAR_AFTER_POLLS)
    assert node.looks(10, process(9 * GIB)) == ["memory"]


def test_the_drivers_figure_of_a_cgroup_goes_before_those_of_its_processes() -> None:
    node, least = Node(CHARGED), detection.REPORT_AFTER_POLLS
    counted = Counted(4 * GIB, 4 * GIB)
    assert [node.look(process(9 * GIB), counted=counted) for _ in range(least)] == [[]] * least
    counted = Counted(4 * GIB, 5 * GIB)  # its share was made smaller
    found = [node.look(process(), counted=counted) for _ in range(least)][-1]
    assert [(one.why, one.used, one.limit) for one in found] == [("memory", 5 * GIB, 4 * GIB)]


@pytest.mark.parametrize(
    ("share", "each"), [(SHARE, GIB), (CHARGED, 300 * MIB)], ids=["uncharged", "charged"]
)
def test_each_process_may_have_its_context_beside_the_limit(share: Share, each: int) -> None:
    full = [process(each, pid=pid) for pid in range(8)] + [process(share.memory_bytes, pid=8)]
    assert Node(share).looks(20, *full) == []
    full.append(process(share.memory_bytes, pid=9))
    assert Node(share).looks(20, *full) == ["memory"]


def test_a_gpu_that_was_not_given_is_found_whatever_is_held_of_it() -> None:
    node = Node()
    assert node.looks(10, process(), uuid="GPU-1") == ["gpu"]
    (finding,) = node.look(process(2 * MIB), uuid="GPU-1")
    assert finding.text == (
        "container it holds 2.0 MiB of GPU-1, which it was not given: process 7 (train)"
    )


def test_a_process_without_the_shim_is_found_where_others_share_the_gpu() -> None:
    node = Node()
    assert node.looks(10, process(GIB, pid=6), process(GIB, has_shim=False)) == ["shim"]
    (finding,) = node.look(process(GIB, pid=6), process(GIB, has_shim=False))
    assert (finding.pids, finding.used) == ((7,), GIB)
    whole = Share(80 * GIB, 100, True, 0)
    assert Node(whole).looks(10, process(70 * GIB, has_shim=False), part=1.0) == []


def test_time_beyond_the_ceiling_is_found_after_a_whole_window_and_only_reported() -> None:
    node = Node()
    looks = int(detection.WINDOW_SECONDS / PERIOD)
    assert node.looks(looks, process(), part=0.6) == []
    assert node.looks(20, process(), part=0.6) == ["time"]
    (finding,) = node.look(process(), part=0.6)
    assert (finding.used, finding.limit) == (60, 30)
    assert finding.text == (
        "container it used 60 % of GPU-0's time, its limit is 30 %: process 7 (train)"
    )
    assert finding.why in detection.REPORTED_ONLY


def test_one_huge_kernel_that_is_paid_for_afterwards_is_no_bypass() -> None:
    """25 s at once, of a container that has 30 % of the time."""
    node = Node()
    for _ in range(4):
        assert node.looks(13, process(), part=1.0) == []
        assert node.looks(30, process(), part=0.0) == []


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 4 * GIB), min_size=1, max_size=6), st.floats(0, 0.5)),
        max_size=120,
    )
)
@settings(max_examples=60)
def test_a_process_within_its_limit_is_never_reported(looks: list[tuple[list[int], float]]) -> None:
    node = Node()
    for held, part in looks:
        # The shim limits the sum of allocations; each process has a context in addition.
        room, processes = SHARE.memory_bytes, []
        for pid, wish in enumerate(held):
            allocated = min(wish, room)
            room -= allocated
            processes.append(process(allocated + GIB // 2, pid=pid))
        assert node.look(*processes, part=part) == []


def test_removed_container_leaves_no_state() -> None:
    node = Node()
    node.looks(10, process(9 * GIB))
    holders, node.holders = node.holders, {}
    node.look()
    node.holders = holders
    assert node.looks(detection.REPORT_AFTER_POLLS - 1, process(9 * GIB)) == []


def test_work_beside_turns_is_reported_at_once_and_once() -> None:
    node = Node()
    (finding,) = node.look_for_hidden(Hidden(0.8, 50, 10))
    assert finding == Finding(
        "it",
        detection.TURNS,
        "GPU-0",
        50,
        10,
        (7,),
        "container it used 50 % of GPU-0's time, 10 % of it in its turns; the rest costs it turns: "
        "process 7 (train)",
        True,
    )
    assert detection.TURNS in detection.REPORTED_ONLY
    (again,) = node.look_for_hidden(Hidden(0.8, 50, 10))
    assert not again.is_new
