"""The processes below a container in `vcuda top`: their figures, order, number and names."""

from __future__ import annotations

from typing import Any

from vcuda_hook.live.process_use import ContainerProcess
from vcuda_hook.show import process_rows, top_table
from vcuda_hook.show.process_rows import NOTHING, ProcessRow, Reading

SECOND = 10**9
TRAIN = ProcessRow(70, "train", None, 1 << 20)


def reading(at: int, *processes: ContainerProcess) -> Reading:
    return Reading(at * SECOND, {"box": processes}, {"box": ["GPU-0", "GPU-1"]})


def entry(**changes: Any) -> dict[str, Any]:
    figures = dict.fromkeys(["core_used_percent", "held_percent", "waited_percent", "suspension"])
    share = {"core_percent": 30, "core_ceiling_percent": 30, "memory_bytes": 1 << 30}
    terms = {"policy": "fixed", "weight": 1, "priority": 0, "latency": "normal", "rotates": False}
    rest = {"id": "box", "name": "box", "gpu_uuid": "GPU-0", "usage": "told", "refusals": 0}
    none: dict[str, Any] = {
        "memory_used_bytes": 0,
        "memory_managed": False,
        "waits": None,
        "waits_for": [],
    }
    return {**figures, **share, **terms, **rest, **none, **changes}


def test_use_of_each_gpu_is_the_difference_of_two_readings() -> None:
    before = reading(1, ContainerProcess(70, 7, "train", (0, 4), (0, SECOND)))
    now = reading(
        3,
        ContainerProcess(71, 8, "new", (1, 9), (5, 5)),
        ContainerProcess(70, 7, "train", (2, 4), (SECOND // 2, 5 * SECOND)),
        ContainerProcess(72, 9, "sh"),
    )
    new, train, shell = (71, "new", None), (70, "train"), (72, "sh", None, None)
    assert process_rows.rows("box", "GPU-0", before, now) == [(*train, 25, 2), (*new, 1), shell]
    assert process_rows.rows("box", "GPU-1", before, now) == [(*new, 9), (*train, 100, 4), shell]
    assert process_rows.rows("box", "GPU-7", before, now) == []
    assert process_rows.rows("gone", "GPU-0", NOTHING, now) == []
    # A page that was rewritten with less than before has no figure.
    assert process_rows.rows("box", "GPU-1", now, before._replace(at_ns=9 * SECOND))[0][2] is None


def test_many_processes_are_bounded_and_a_name_moves_no_cursor() -> None:
    many = [ProcessRow(pid, "\x1b[2J", None, 1 << 20) for pid in range(25)]
    lines = top_table.lines([entry()], 80, lambda id, uuid: many)
    texts = ["".join(text for text, _ in line) for line in lines]
    assert len(texts) == 2 + process_rows.MOST + 1
    assert texts[2].split() == ["0", "?[2J", "-", "1", "MiB"]
    assert texts[-1] == "    and 5 more processes"
    assert texts[0].index("MEMORY") == texts[2].index("1 MiB")


def test_process_of_a_suspended_or_false_container_shows_no_memory() -> None:
    off = {"step": "suspended", "since": 0, "bytes": 1 << 20}
    for changes, shown in (({"suspension": off}, "0 B"), ({"usage": "impossible"}, "-")):
        *_, line = top_table.lines([entry(**changes)], 80, lambda id, uuid: [TRAIN])
        assert line[0][0].split(maxsplit=3)[3] == shown
