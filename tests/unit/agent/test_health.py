"""A GPU is unhealthy only for lasting faults, and only while they last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from vcuda_oci.ledger.unhealthy import GpuFault
from vcuda_oci.system import settings_file
from vcuda_oci.system.settings_file import Config
from vcuda_plugin.agent.gpus.health import Health

UUIDS = ("a", "b")
LOST = {"a": "GPU is lost"}


def classes(ignored: Sequence[int], lasting: Sequence[int]) -> Config:
    xids = [json.dumps([str(xid) for xid in each]) for each in (ignored, lasting)]
    text = "ignored-xids = {}\nlasting-xids = {}".format(*xids)
    return settings_file.parse(text, "config.toml")


def run(looks: Sequence[tuple[float, dict[str, str], list[tuple[str, int]]]]) -> dict[str, str]:
    """The unhealthy GPUs after the last of (time, failing, xids)."""
    health, now = Health(classes([13, 31], [48, 79])), 0.0
    for now, failing, xids in looks:
        health.see(now, UUIDS, failing, xids)
    return health.unhealthy(now)


def every_second(*spans: tuple[int, dict[str, str]]) -> list[tuple[float, dict[str, str], list]]:
    """Samples, one a second."""
    failing = [what for seconds, what in spans for _ in range(seconds)]
    return [(float(at), what, []) for at, what in enumerate(failing)]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(20, {})], {}),
        ([(5, {}), (4, LOST)], {}),
        ([(5, {}), (5, LOST)], LOST),
        ([(5, {}), (3, LOST), (1, {}), (3, LOST)], {}),
        ([(5, LOST), (8, {})], LOST),
        ([(5, LOST), (9, {})], {}),
        ([(5, LOST), (7, {}), (1, LOST), (8, {})], LOST),
        ([(5, LOST), (9, {}), (5, LOST)], LOST),
    ],
    ids=[
        "answers",
        "fails for a moment",
        "fails for a while",
        "stutters",
        "is back for a moment",
        "is back for a while",
        "comes and goes",
        "fails again",
    ],
)
def test_health_follows_what_lasts(
    spans: list[tuple[int, dict[str, str]]], expected: dict[str, str]
) -> None:
    assert run(every_second(*spans)) == expected


@pytest.mark.parametrize(
    ("xids", "seconds", "expected"),
    [
        ([13, 31], 0, {}),
        ([94], 0, {"b": "Xid 94"}),
        ([94], 59, {"b": "Xid 94"}),
        ([94], 60, {}),
        ([48], 1_000_000, {"b": "Xid 48"}),
        ([48, 94, 13], 1_000_000, {"b": "Xid 48"}),
        ([94, 48], 1_000_000, {"b": "Xid 48"}),
    ],
    ids=[
        "a program's fault",
        "at once",
        "for a minute",
        "and no longer",
        "for good",
        "a lesser one ends none that lasts",
        "one that lasts after a lesser one",
    ],
)
def test_an_xid_counts_by_its_class(
    xids: list[int], seconds: float, expected: dict[str, str]
) -> None:
    looks: list[Any] = [(0.0, {}, [("b", xid)]) for xid in xids]
    assert run([*looks, (float(seconds), {}, [])]) == expected


def test_lost_and_restored_gpu_counts_as_reset() -> None:
    looks = every_second((1, {}), (6, {"b": "GPU is lost"}), (8, {}))
    assert run([(0.0, {}, [("b", 79)]), *looks]) == {"b": "GPU is lost"}
    assert run([(0.0, {}, [("b", 79)]), *looks, (15.0, {}, [])]) == {}
    # What fails for a moment only was not.
    looks = every_second((1, {}), (2, {"b": "Timeout"}), (90, {}))
    assert run([(0.0, {}, [("b", 79)]), *looks]) == {"b": "Xid 79"}


def test_removed_and_restored_gpu_is_healthy() -> None:
    health = Health(classes([], [79]))
    health.see(0, UUIDS, {}, [("a", 79), ("gone", 79)])
    health.see(1, ["b"], {})
    assert health.unhealthy(1) == {}
    health.see(2, UUIDS, {})
    assert health.unhealthy(2) == {}


def test_restarted_agent_restores_faults() -> None:
    health = Health(classes([13], [48, 79]))
    health.see(0, "abcd", {"c": "GPU is lost"}, [("a", 48), ("b", 94)])
    health.see(5, "abcd", {"c": "GPU is lost"})
    known = health.faults(5)
    assert known == {
        "a": GpuFault("", 48, None),
        "b": GpuFault("", 94, 60.0),
        "c": GpuFault("GPU is lost", 0, None),
    }
    health = Health(classes([13], [48, 79]), known)
    health.see(10, "abcd", {})
    assert health.faults(10) == known
    # One that answers again does so for as long as any.
    health.see(18, "abcd", {})
    assert health.unhealthy(18) == {"a": "Xid 48", "b": "Xid 94"}
    health.see(60, "abcd", {})
    assert health.unhealthy(60) == {"a": "Xid 48"}
    # The current settings decide which Xids last.
    health = Health(classes([], [79]), {"a": GpuFault("", 48, None)})
    health.see(61, "abcd", {})
    assert health.unhealthy(61) == {}
