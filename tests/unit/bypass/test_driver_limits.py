"""The memory limits that are set in the driver, and when they are set."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.ledger.samples import GIB
from vcuda_hook.live.driver_figures import Counted
from vcuda_plugin.agent.bypass.detection import Share
from vcuda_plugin.agent.bypass.driver_limits import DriverLimits, hard_bytes
from vcuda_plugin.agent.bypass.process_probe import NO_LIMIT

MIB = 1 << 20


class Driver:
    """A fake driver that records its calls, or refuses them with a reason."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []
        self.reason = ""
        self.used: int | None = MIB

    def set_limit(self, uuid: str, cgroup: str, hard: int) -> str:
        self.calls.append((uuid, cgroup, hard))
        return self.reason

    def count(self, uuid: str, cgroup: str) -> int | None:
        return self.used


def limits_in(driver: Driver) -> DriverLimits:
    return DriverLimits(driver.set_limit, driver.count)


@pytest.mark.parametrize(
    ("share", "processes", "hard"),
    [
        (Share(4 * GIB, 30, False, 300 * MIB), 5, 4 * GIB),
        (Share(4 * GIB, 30, False, 0), 0, 5 * GIB),
        (Share(4 * GIB, 30, False, 0), 2, 7 * GIB),
        (Share(15 * GIB, 30, False, 0), 2, NO_LIMIT),
        (Share(16 * GIB, 100, True, 300 * MIB), 1, NO_LIMIT),
    ],
    ids=[
        "contexts charged",
        "no process yet",
        "two processes",
        "more than there is",
        "a whole GPU",
    ],
)
def test_the_limit_leaves_room_for_what_the_shim_does_not_count(
    share: Share, processes: int, hard: int
) -> None:
    assert hard_bytes(share, processes, 16 * GIB) == hard


def test_limit_is_set_changed_and_removed_with_its_allocation(tmp_path: Path) -> None:
    driver, place = Driver(), (str(tmp_path), "GPU-0")
    limits = limits_in(driver)
    for hard in (GIB, GIB, 2 * GIB, NO_LIMIT, NO_LIMIT, GIB):
        assert limits.hold({place: hard}) == ""
    # Released, and its processes live on.
    assert limits.hold({}) == limits.hold({}) == ""
    asked = (GIB, 2 * GIB, NO_LIMIT, GIB, NO_LIMIT)
    assert driver.calls == [("GPU-0", str(tmp_path), hard) for hard in asked]


def test_limit_is_removed_with_its_cgroup(tmp_path: Path) -> None:
    driver, folder = Driver(), tmp_path / "container"
    folder.mkdir()
    limits = limits_in(driver)
    limits.hold({(str(folder), "GPU-0"): GIB})
    folder.rmdir()
    limits.hold({})
    assert len(driver.calls) == 1


def test_a_driver_that_refuses_is_reported_once_and_asked_again_later(tmp_path: Path) -> None:
    driver, wanted = Driver(), {(str(tmp_path), "GPU-0"): GIB}
    driver.reason = "Not Supported"
    limits = limits_in(driver)
    assert limits.hold(wanted) == "the driver holds no limits itself: Not Supported"
    assert [limits.hold(wanted) for _ in range(100)] == [""] * 100
    assert 2 <= len(driver.calls) <= 5
    driver.reason = ""
    for _ in range(40):
        limits.hold(wanted)
    asked = len(driver.calls)
    limits.hold(wanted)
    assert len(driver.calls) == asked


def test_figures_are_those_of_limits_in_force_that_the_driver_knows(tmp_path: Path) -> None:
    driver, place, whole = Driver(), (str(tmp_path), "GPU-0"), (str(tmp_path), "GPU-1")
    limits = limits_in(driver)
    limits.hold({place: GIB, whole: NO_LIMIT})
    assert limits.counted() == {place: Counted(GIB, MIB)}
    driver.used = None
    assert limits.counted() == {}
