"""Texts for people: sizes, ages, colours; and the demo's verdict."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from vcuda_hook.demo import demo
from vcuda_hook.text import table

GIB = 1 << 30


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (4 * GIB, "4 GiB"),
        (5153960755, "4.8 GiB"),
        (1 << 50, "1024 TiB"),
    ],
)
def test_a_size_is_shown_in_the_largest_unit(count: int, text: str) -> None:
    assert table.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (59.9, "59s"), (60, "1m"), (7200, "2h"), (200000, "2d")],
)
def test_an_age_is_shown_in_one_unit(seconds: float, text: str) -> None:
    assert table.age(seconds) == text


def test_colour_is_for_terminals_only(monkeypatch: Any) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert table.coloured("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert table.coloured("x", "red") == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert table.coloured("x", "red") == "x"


def measured(**changes: Any) -> dict[str, Any]:
    a = {
        "name": "A",
        "core_asked_percent": 30,
        "core_held_percent": 32.9,
        "core_measured_percent": 30.0,
        "memory_limit_bytes": 4 * GIB,
        "allocation_failed_at_bytes": 4 * GIB,
        "allocation_error": "CUDA_ERROR_OUT_OF_MEMORY",
    }
    return {
        "containers": [{**a, **changes}],
        "refusal": "vcuda: placement: largest free share is 0 % and 4.0 GiB on GPU-0; 30 % asked",
    }


def test_the_demo_is_a_success_when_all_of_it_held() -> None:
    assert demo.judge(measured()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"core_held_percent": 33.1},
        {"core_held_percent": 26.9},
        {"core_measured_percent": 33.1},
        {"core_measured_percent": 0.0},
        {"allocation_failed_at_bytes": 4 * GIB - 1},
        {"allocation_error": "CUDA_SUCCESS"},
    ],
    ids=[
        "holds too much",
        "holds too little",
        "works too much",
        "does not work",
        "a byte less than the limit",
        "no failure",
    ],
)
def test_the_demo_fails_when_a_promise_did_not_hold(changes: dict[str, Any]) -> None:
    (failure,) = demo.judge(measured(**changes))
    assert failure.startswith("A")


def test_the_demo_fails_when_the_third_container_is_not_refused() -> None:
    result = {**measured(), "refusal": ""}
    assert demo.judge(result) == ["the third container was not refused with what would fit"]
