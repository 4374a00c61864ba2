"""`vcuda events`: the selected events, and following new ones."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from typing import Any

import pytest

from support.files import ROOT
from support.ledger.event_log import EventLog
from vcuda_hook.cli import main
from vcuda_hook.show import show_events
from vcuda_oci.ledger import events

# Imported now: the user of a test cannot read where the sources may lie.
assert show_events
HALF = "50 % and 4.0 GiB of GPU-0, fixed"


@pytest.fixture
def event_log(tmp_path: Any) -> EventLog:
    return EventLog(str(tmp_path))


def test_events_are_a_table_in_the_order_of_time(event_log: EventLog, capsys: Any) -> None:
    event_log.record("claimed", "box", HALF, container="box")
    event_log.record("claimed", "f" * 64, HALF, container="f" * 64)
    event_log.record("refused", "pod-u.main", "no\x1b[2J room", container="c1", pod="ml/train/main")
    event_log.record("agent-started", "", "version 0.1.0")
    assert event_log.lines(capsys) == [
        ["EVENT", "CONTAINER", "BY", "WHAT"],
        ["claimed", "box", "vcuda", HALF],
        ["claimed", "ffffffffffff", "vcuda", HALF],
        ["refused", "ml/train/main", "vcuda", "no?[2J room"],
        ["agent-started", "-", "vcuda", "version 0.1.0"],
    ]


@pytest.mark.parametrize(
    "name", ["pod-u.main", "pod-u", "c1", "c2", "train", "ml/train", "ml/train/main"]
)
def test_one_name_shows_the_whole_life_of_what_it_names(
    event_log: EventLog, capsys: Any, name: str
) -> None:
    pod = {"pod": "ml/train/main"}
    event_log.record("claimed", "pod-u.main", container="c1", **pod)
    event_log.record("claimed", "box", container="box")
    event_log.record("taken-over", "pod-u.main", container="c2", **pod)
    event_log.record("limit-changed", "pod-u.main", container="c2", **pod)
    event_log.record("released", "pod-u.main", container="c2", **pod)
    kinds = [line[0] for line in event_log.lines(capsys, name)]
    assert kinds == ["EVENT", "claimed", "taken-over", "limit-changed", "released"]


def test_a_name_of_which_nothing_is_known_is_one_line(event_log: EventLog, capsys: Any) -> None:
    assert event_log.lines(capsys) == [["EVENT", "CONTAINER", "BY", "WHAT"]]
    assert main.main([*event_log.words, "unknown"]) == 1
    assert capsys.readouterr() == ("", "vcuda: unknown: no event of it; see 'vcuda events'\n")


def test_since_leaves_out_what_is_older(event_log: EventLog, capsys: Any, monkeypatch: Any) -> None:
    now = time.time()
    for age in (7200, 300, 20):
        monkeypatch.setattr(time, "time", lambda age=age: now - age)
        event_log.record("claimed", f"box-{age}")
    monkeypatch.setattr(time, "time", lambda: now)
    for since, ages in (("1d", [7200, 300, 20]), ("10m", [300, 20]), ("90s", [20])):
        found = [line[1] for line in event_log.lines(capsys, "--since", since)[1:]]
        assert found == [f"box-{age}" for age in ages]
    with pytest.raises(SystemExit) as wrong:
        main.main([*event_log.words, "--since", "yesterday"])
    assert wrong.value.code == 2


def test_in_json_they_are_as_they_were_written(event_log: EventLog, capsys: Any) -> None:
    event_log.record("claimed", "box", HALF, container="box")
    assert main.main([*event_log.words, "box", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == list(events.read(event_log.state_dir))


def vcuda(event_log: EventLog, *words: str, **options: Any) -> subprocess.Popen[str]:
    start = "import sys; from vcuda_hook.cli.main import main; sys.exit(main())"
    path = f"{ROOT}/oci:{ROOT}/runtime_hook"
    return subprocess.Popen(
        [sys.executable, "-c", start, *event_log.words, *words],
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        text=True,
        **options,
    )


def test_follow_shows_events_across_a_rotation_of_the_file(
    event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_log.record("claimed", "box", "0")
    process = vcuda(event_log, "box", "--follow", "--json", stdout=subprocess.PIPE)
    assert process.stdout
    try:
        assert json.loads(process.stdout.readline())["text"] == "0"
        monkeypatch.setattr(events, "MOST_BYTES", 1)  # each is the last of its file
        for number in range(1, 4):
            event_log.record("released", "other", "x")
            event_log.record("limit-changed", "box", str(number))
            assert json.loads(process.stdout.readline())["text"] == str(number)
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def test_colours_are_for_a_terminal_only(event_log: EventLog) -> None:
    event_log.record("refused", "box", "no room")
    ours, terminal = pty.openpty()
    try:
        assert vcuda(event_log, stdout=terminal).wait(30) == 0
        assert "\x1b[31m" in os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(terminal)
    assert "\x1b" not in str(vcuda(event_log, stdout=subprocess.PIPE).communicate(timeout=30)[0])
