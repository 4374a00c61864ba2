"""The idle time of containers."""

from __future__ import annotations

from vcuda_plugin.agent.suspend.idleness import Idleness, Sample


def sample(work: int, idle_suspend: int = 60, awake: bool = True) -> Sample:
    return Sample(idle_suspend, (work,), awake)


def test_container_without_work_for_its_time_is_idle() -> None:
    idleness = Idleness()
    assert idleness.update(0, {"a": sample(1)}) == []
    assert idleness.update(59.9, {"a": sample(1)}) == []
    assert idleness.update(60, {"a": sample(1)}) == ["a"]
    assert idleness.seconds("a", 60) == 60


def test_each_piece_of_work_begins_the_time_again() -> None:
    idleness = Idleness()
    for at in range(0, 600, 50):
        assert idleness.update(at, {"a": sample(at)}) == []
    assert idleness.update(609, {"a": sample(550)}) == []
    assert idleness.update(610, {"a": sample(550)}) == ["a"]


def test_container_that_was_suspended_begins_with_its_whole_time() -> None:
    idleness = Idleness()
    idleness.update(0, {"a": sample(1)})
    assert idleness.update(100, {"a": sample(1, awake=False)}) == []
    assert idleness.seconds("a", 100) == 0
    assert idleness.update(200, {"a": sample(1)}) == []
    assert idleness.update(259, {"a": sample(1)}) == []
    assert idleness.update(260, {"a": sample(1)}) == ["a"]


def test_longest_idle_container_comes_first_and_one_without_a_time_never() -> None:
    idleness = Idleness()
    idleness.update(0, {"late": sample(1), "early": sample(1), "never": sample(1, 0)})
    idleness.update(5, {"late": sample(2), "early": sample(1), "never": sample(1, 0)})
    last = {"late": sample(2), "early": sample(1), "never": sample(1, 0)}
    assert idleness.update(1000, last) == ["early", "late"]


def test_failed_suspension_is_tried_after_another_whole_time() -> None:
    idleness = Idleness()
    idleness.update(0, {"a": sample(1)})
    assert idleness.update(60, {"a": sample(1)}) == ["a"]
    idleness.begin_again("a")
    assert idleness.update(61, {"a": sample(1)}) == []
    assert idleness.update(121, {"a": sample(1)}) == ["a"]
