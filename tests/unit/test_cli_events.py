"""`vcuda events`: which events it shows, and how it follows."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from typing import Any

import pytest

from support.files import ROOT, write
from vcuda_hook.cli import main
from vcuda_hook.show import show_events
from vcuda_oci.ledger import events

# Imported now: the user of a test cannot read where the sources may lie.
assert show_events
HALF = "50 % and 4.0 GiB of GPU-0, fixed"


class Told:
    """A state folder of which events tell, and the command."""

    def __init__(self, folder: str) -> None:
        self.state_dir = folder + "/state"
        self.config = write(folder + "/config.toml", f'state-dir = "{self.state_dir}"\n')
        self.words = ["--config", self.config, "events"]

    def happens(self, kind: str, allocation: str, text: str = "", **more: str) -> None:
        events.record(self.state_dir, "vcuda", kind, allocation, text, **more)

    def lines(self, capsys: Any, *words: str) -> list[list[str]]:
        assert main.main([*self.words, *words]) == 0
        return [re.split(r"  +", line)[1:] for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def tells(tmp_path: Any) -> Told:
    return Told(str(tmp_path))


def test_events_are_a_table_in_the_order_of_time(tells: Told, capsys: Any) -> None:
    tells.happens("claimed", "box", HALF, container="box")
    tells.happens("claimed", "f" * 64, HALF, container="f" * 64)
    tells.happens("refused", "pod-u.main", "no\x1b[2J room", container="c1", pod="ml/train/main")
    tells.happens("agent-started", "", "version 0.1.0")
    assert tells.lines(capsys) == [
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
    tells: Told, capsys: Any, name: str
) -> None:
    pod = {"pod": "ml/train/main"}
    tells.happens("claimed", "pod-u.main", container="c1", **pod)
    tells.happens("claimed", "box", container="box")
    tells.happens("taken-over", "pod-u.main", container="c2", **pod)
    tells.happens("limit-changed", "pod-u.main", container="c2", **pod)
    tells.happens("released", "pod-u.main", container="c2", **pod)
    kinds = [line[0] for line in tells.lines(capsys, name)]
    assert kinds == ["EVENT", "claimed", "taken-over", "limit-changed", "released"]


def test_a_name_of_which_nothing_is_known_is_one_line(tells: Told, capsys: Any) -> None:
    assert tells.lines(capsys) == [["EVENT", "CONTAINER", "BY", "WHAT"]]
    assert main.main([*tells.words, "unknown"]) == 1
    assert capsys.readouterr() == ("", "vcuda: unknown: no event of it; see 'vcuda events'\n")


def test_since_leaves_out_what_is_older(tells: Told, capsys: Any, monkeypatch: Any) -> None:
    now = time.time()
    for age in (7200, 300, 20):
        monkeypatch.setattr(time, "time", lambda age=age: now - age)
        tells.happens("claimed", f"box-{age}")
    monkeypatch.setattr(time, "time", lambda: now)
    for since, ages in (("1d", [7200, 300, 20]), ("10m", [300, 20]), ("90s", [20])):
        found = [line[1] for line in tells.lines(capsys, "--since", since)[1:]]
        assert found == [f"box-{age}" for age in ages]
    with pytest.raises(SystemExit) as wrong:
        main.main([*tells.words, "--since", "yesterday"])
    assert wrong.value.code == 2


def test_in_json_they_are_as_they_were_written(tells: Told, capsys: Any) -> None:
    tells.happens("claimed", "box", HALF, container="box")
    assert main.main([*tells.words, "box", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == list(events.read(tells.state_dir))


def vcuda(tells: Told, *words: str, **options: Any) -> subprocess.Popen[str]:
    start = "import sys; from vcuda_hook.cli.main import main; sys.exit(main())"
    path = f"{ROOT}/oci:{ROOT}/runtime_hook"
    return subprocess.Popen(
        [sys.executable, "-c", start, *tells.words, *words],
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        text=True,
        **options,
    )


def test_follow_shows_events_across_a_rotation_of_the_file(
    tells: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells.happens("claimed", "box", "0")
    process = vcuda(tells, "box", "--follow", "--json", stdout=subprocess.PIPE)
    assert process.stdout
    try:
        assert json.loads(process.stdout.readline())["text"] == "0"
        monkeypatch.setattr(events, "MOST_BYTES", 1)  # each is the last of its file
        for number in range(1, 4):
            tells.happens("released", "other", "x")
            tells.happens("limit-changed", "box", str(number))
            assert json.loads(process.stdout.readline())["text"] == str(number)
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def test_colours_are_for_a_terminal_only(tells: Told) -> None:
    tells.happens("refused", "box", "no room")
    ours, terminal = pty.openpty()
    try:
        assert vcuda(tells, stdout=terminal).wait(30) == 0
        assert "\x1b[31m" in os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(terminal)
    assert "\x1b" not in str(vcuda(tells, stdout=subprocess.PIPE).communicate(timeout=30)[0])
