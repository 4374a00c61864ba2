"""The history that `vcuda top` draws, of the agent, then of its own samples; and its colours."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from support.served import serving
from vcuda_hook.live import in_time
from vcuda_hook.show import agent_client, history, top, top_table
from vcuda_hook.show.history import History


def view(at: float, *used: float | None, uuid: str = "GPU-0") -> dict[str, Any]:
    tenants = [{"gpu_uuid": uuid, "core_used_percent": figure} for figure in used]
    return {"time": at, "gpus": [{"uuid": uuid}], "tenants": tenants}


def test_samples_are_averaged_in_steps_of_ten_seconds() -> None:
    past = History({})
    for at, used in ((0.0, 10.0), (5.0, 30.0), (10.0, 50.0), (20.0, 70.0)):
        past.add(view(at, used, 5.0))
    past.add(view(30.0, None))
    assert list(past.of["GPU-0"]) == [35.0, 75.0, None]


def test_a_line_needs_a_minute_and_ends_at_the_right() -> None:
    past = History({"GPU-0": [0.0] * 5})
    assert past.line("GPU-0", 20, plain=True) == ("", "")
    past = History({"GPU-0": [0.0, 0.2, 1.0, 50.0, None, 100.0]})
    assert past.line("GPU-0", 10, plain=True) == (
        "      .=?@".rjust(10), "1 min: 30 %, at most 100 %",
    )  # fmt: skip
    assert past.line("GPU-0", 10, plain=False)[0] == "      ▁▄?█"
    assert past.line("GPU-7", 10, plain=True) == ("", "")


def test_many_points_share_a_character_and_an_hour_is_the_most() -> None:
    past = History({"GPU-0": [100.0] * 500 + [0.0] * 180})
    drawn, says = past.line("GPU-0", 20, plain=True)
    assert drawn == "@" * 10 + " " * 10
    assert says == "60 min: 50 %, at most 100 %"


def test_marks_stand_below_the_points_of_their_time() -> None:
    past = History({"GPU-0": [0.0] * 10})
    assert past.marks("GPU-0", 14, [0, 95, 25, 100, -5]) == "    ^      ^ ^"
    assert past.marks("GPU-0", 5, [15, 25]) == "   ^^"
    assert past.marks("GPU-0", 5, [3600]) == past.marks("GPU-7", 5, [1]) == ""


@pytest.mark.parametrize("tree", [None, [], {"events": 5}, {"events": [5, {"time": "x"}]}])
def test_what_is_no_list_of_events_counts_as_none(tree: Any) -> None:
    assert agent_client.events_of(tree) == {}


def answered(body: Any, status: int = 200) -> Any:
    with serving(json.dumps(body).encode(), status) as address:
        return history.of_agent(address)


def test_the_agents_history_is_read_by_gpu() -> None:
    gpus = {"GPU-0": {"compute_percent": [None, 5]}, "GPU-1": {"compute_percent": []}}
    assert answered({"step_seconds": 10, "gpus": gpus}) == {"GPU-0": [None, 5], "GPU-1": []}


@pytest.mark.parametrize(
    "body",
    [
        [], "x", 5, None, {}, {"step_seconds": 5, "gpus": {}}, {"step_seconds": 10, "gpus": 5},
        {"step_seconds": 10, "gpus": {"GPU-0": 5}},
        {"step_seconds": 10, "gpus": {"GPU-0": {"compute_percent": ["\x1b[2J"]}}},
        {"step_seconds": 10, "gpus": {"GPU-0": {"compute_percent": [-1]}}},
    ],
)  # fmt: skip
def test_what_is_no_history_counts_as_none(body: Any) -> None:
    assert answered(body) == {}


def test_no_agent_a_refusal_and_no_address_count_as_none() -> None:
    assert answered({}, 404) == {}
    assert history.of_agent("") == history.of_agent("127.0.0.1:") == {}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert history.of_agent(f"0.0.0.0:{port}") == {}
    assert history.of_agent(f"127.0.0.1:{port}") == {}


def test_a_server_that_answers_byte_by_byte_is_left(monkeypatch: Any) -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
                while not over.wait(0.05):
                    try:
                        connection.sendall(b"[")
                    except OSError:
                        return

        thread = threading.Thread(target=trickle)
        thread.start()
        monkeypatch.setattr(top, "_HISTORY_SECONDS", 0.3)
        assert top._agents(f"127.0.0.1:{server.getsockname()[1]}") == {}
        over.set()
        thread.join()
    assert in_time.ask([lambda: 1], 5) == [1]


@pytest.mark.parametrize("ground", [0, 255], ids=["black", "white"])
def test_each_colour_stands_out_from_a_black_and_a_white_ground(ground: int) -> None:
    def luminance(red: int, green: int, blue: int) -> float:
        """Source: WCAG 2.2, "relative luminance"."""
        parts = [each / 255 for each in (red, green, blue)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def colour(number: int) -> tuple[int, int, int]:
        """Source: xterm's 256colres.h: a cube with six steps a side, then greys."""
        if number >= 232:
            return (8 + 10 * (number - 232),) * 3
        steps, cube = (0, 95, 135, 175, 215, 255), number - 16
        return steps[cube // 36], steps[cube // 6 % 6], steps[cube % 6]

    numbers = [int(each.rpartition(";")[2]) for each in top_table.COLOURS]
    around = luminance(ground, ground, ground) + 0.05
    ratios = [(luminance(*colour(number)) + 0.05) / around for number in numbers]
    assert len(set(numbers)) == 7
    assert [n for n, ratio in zip(numbers, ratios) if max(ratio, 1 / ratio) < 3] == []
