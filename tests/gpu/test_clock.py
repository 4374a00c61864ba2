"""The questions of the clock find what the software GPU's model states, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.result import Figure
from gpu import model
from gpu.machine import answer, compiled
from gpu.time import clock
from support.softgpu.softgpu_host import SoftGpu
from support.softgpu.virtual_time import Clock

SECONDS = 1.0
NS_PER_STEP = 1.0
COPIES = ["--bus-rate", "10GiB/s", "--copy-rate", "100GiB/s"]
SHORT = ["--slice", "500us", "--switch-cost", "500us", "--submit-time", "5us", *COPIES]
LONG = ["--slice", "30ms", "--switch-cost", "20us", "--no-preemption", "--bus-rate", "1GiB/s"]


def near(value: float) -> Any:
    return pytest.approx(value, rel=0.2)


# By card, options of `softgpu create`, and figures to be found.
FOUND: dict[str, tuple[list[str], dict[str, Any]]] = {
    "default": (
        [],
        {
            "clock.slice, length": near(2),
            "clock.slice, a change of context": near(100),
            "clock.preemption, median wait": near(100 * 2.2 / 200),
            "clock.submission": near(2),
            "events.beside a neighbour": near(2.1),
        },
    ),
    "short slices": (
        SHORT,
        {
            "clock.slice, length": near(0.5),
            "clock.slice, a change of context": near(500),
            "clock.preemption, median wait": near(100 * 1.5 / 200),
            "clock.submission": near(5),
            "clock.copies from the host": near(10),
            "clock.copies within the GPU": near(100),
            "clock.copies beside a kernel": near(100),
            "events.beside a neighbour": near(4),
        },
    ),
    "long slices without preemption": (
        LONG,
        {
            "clock.slice, length": near(30),
            "clock.slice, a change of context": near(20),
            "clock.preemption, median wait": near(100),
            "clock.submission": near(2),
            "clock.copies from the host": near(1),
            "events.beside a neighbour": near(1),
        },
    ),
    "MPS": (
        ["--mps"],
        {"clock.slice, turns that show": 0, "events.beside a neighbour": near(1)},
    ),
    "kind": (
        ["--clock", "kind"],
        {
            "clock.slice, turns that show": 0,
            "clock.streams narrow": near(1),
            "events.beside a neighbour": near(1),
        },
    ),
}
OVERLAPPING = {"clock.streams narrow": near(8), "clock.streams filling": near(1)}


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(clock.PROBE, str(tmp_path_factory.mktemp("probe")))


class VirtualCard:
    def __init__(self, probe: str, folder: Path, options: Sequence[str]) -> None:
        self.probe = probe
        self.gpu = SoftGpu(folder, "--memory", "2GiB", *options)

    def ask(self, *asked: clock.Asked) -> list[Any]:
        virtual = Clock(self.gpu.root.parent, len(asked))
        started = [
            self.gpu.popen(virtual.command(self.probe, *one.command(NS_PER_STEP), "-"))
            for one in asked
        ]
        try:
            return [answer(process) for process in started]
        finally:
            for process in started:
                process.kill()


def figures_of(card: VirtualCard) -> list[Figure]:
    return [
        *clock.slices(card.ask, SECONDS),
        *clock.preemption(card.ask, SECONDS),
        *clock.beside(card.ask, SECONDS),
        *clock.streams(card.ask),
        *clock.copies(card.ask),
        *clock.submissions(card.ask),
    ]


@pytest.mark.parametrize("name", FOUND)
def test_each_question_finds_what_the_card_does(probe: str, tmp_path: Path, name: str) -> None:
    options, expected = FOUND[name]
    if name != "kind":
        expected = OVERLAPPING | expected
    found = {one.name: one.value for one in figures_of(VirtualCard(probe, tmp_path, options))}
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("name", ["short slices", "long slices without preemption", "MPS"])
def test_a_card_by_the_fitted_options_answers_as_the_card(
    probe: str, tmp_path: Path, name: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    figures = figures_of(VirtualCard(probe, first, FOUND[name][0]))
    again = figures_of(VirtualCard(probe, second, model.command(figures)))
    names = set(model.values(figures)) | {"events.beside a neighbour", "clock.streams narrow"}
    assert {one.name: near(one.value) for one in figures if one.name in names} == {
        one.name: one.value for one in again if one.name in names
    }
