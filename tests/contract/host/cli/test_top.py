"""`vcuda top` on a real terminal: the screen, and the terminal's state afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.files import ROOT, write
from support.gpu.driver_root import DriverRoot
from support.host.terminal import Terminal
from support.ledger.samples import GIB
from support.ledger.tenants import Tenants, always_busy
from support.served import serving
from vcuda_oci.model import policies
from vcuda_oci.model.allocation import GpuShare

POD = {"uid": "u", "namespace": "ml", "name": "train-0", "container": "main", "sandbox_id": "s"}
_START = (
    f"import sys; sys.path[:0] = ['{ROOT}/oci', '{ROOT}/runtime_hook']; "
    "from vcuda_hook.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


class Node:
    def __init__(self, folder: str, driver: DriverRoot | SimpleNamespace) -> None:
        self.tenants = Tenants(folder)
        lines = f'state-dir = "{folder}/state"\ndriver-root = "{driver.path}"\n'
        self.config = write(f"{folder}/config.toml", lines + 'listen = ""\n')
        self._terminals: list[Terminal] = []

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-c", _START, "--config", self.config, "top", *words]

    def top(self, *words: str, width: int = 80, height: int = 24) -> Terminal:
        made = Terminal(self.words("--interval", "0.1", *words), width, height)
        self._terminals.append(made)
        return made

    def prints(self, *words: str) -> str:
        return subprocess.run(self.words(*words), capture_output=True, text=True, check=True).stdout

    def close(self) -> None:
        self.tenants.close()
        for terminal in self._terminals:
            terminal.close()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> DriverRoot:
    return DriverRoot(tmp_path_factory.mktemp("driver"), count=2)


@pytest.fixture
def node(driver: DriverRoot, tmp_path: Any) -> Iterator[Node]:
    made = Node(str(tmp_path), driver)
    elastic = GpuShare("GPU-0", 8 * GIB, 30, policies.ELASTIC, 80)
    made.tenants.add_record("pod-u.main", pod=POD, shares=[elastic])
    made.tenants.add_record("box", shares=[GpuShare("GPU-0", 4 * GIB, 20)])
    made.tenants.uses("pod-u.main", held=2 * GIB)
    made.tenants.uses("box", held=3 * GIB, refusals=7)
    yield made
    made.close()


def names(lines: list[str]) -> list[str]:
    """Of the tenants, from above."""
    return [line.split()[1] for line in lines if " of " in line and line[1:2] == " "]


def test_the_screen_shows_gpus_as_bars_with_their_tenants_and_what_changes(node: Node) -> None:
    terminal = node.top()
    lines = terminal.until(lambda lines: "box  " in lines[6] and " 0 of 20 %" in lines[6])
    assert lines[0].endswith("2 GPUs, 2 containers, by name")
    assert lines[2:13] == [
        "GPU 0  Soft  GPU-0",
        "compute [aaaaaabbbbbbbbbb...............] 0 % used, 50 % reserved",
        "memory  [AAAAAAaaBBBBbbbbbbbbbbb........] 5 GiB of 16 GiB used, 12 GiB promised",
        "  CONTAINER        COMPUTE    MEMORY      WAITS  POLICY",
        "A box              0 of 20 %  3 of 4 GiB  0 %    fixed; 7 refusals",
        "B ml/train-0/main  0 of 30 %  2 of 8 GiB  0 %    elastic to 80 %",
        "",
        "GPU 1  Soft  GPU-1",
        "compute [....................................] 0 % used, 0 % reserved",
        "memory  [....................................] 0 B of 16 GiB used, 0 B promised",
        "",
    ]
    assert lines[-1].startswith("q quit")
    node.tenants.uses("box", held=1 * GIB)
    terminal.until(lambda lines: "1 of 4 GiB" in lines[6])
    node.tenants.add_record("later", shares=[GpuShare("GPU-1", GIB, 10)])
    terminal.until(lambda lines: "A later" in lines[13])
    with always_busy([node.tenants.page("box")], 0.01, 10**12):
        terminal.until(lambda lines: "100 of 20 %" in lines[6] and "100 %" in lines[6])
    terminal.press("q")
    assert (terminal.end(), terminal.is_as_before()) == (0, True)


def test_narrow_screen_has_bar_text_below_and_whole_figures_only(node: Node) -> None:
    lines = node.top(width=40).until(lambda lines: " 0 of 20 %" in lines[8])
    assert lines[0].endswith(", 2 GPUs, 2 containers")
    # A name is cut before figures, and a column that does not fit is not there.
    assert lines[7:10] == [
        "  CONTAINER        COMPUTE    MEMORY",
        "A box              0 of 20 %  3 of 4 GiB",
        "B ml/train-0/main  0 of 30 %  2 of 8 GiB",
    ]
    assert lines[3:7] == [
        "compute [aaaaaabbbbbbbbb...............]",
        " 0 % used, 50 % reserved",
        "memory  [AAAAAAaaBBBbbbbbbbbbbb........]",
        " 5 GiB of 16 GiB used, 12 GiB promised",
    ]
    lines = node.top(width=36).until(lambda lines: " 0 of 20 %" in lines[8])
    assert lines[9] == "B ml/tr~/main  0 of 30 %  2 of 8 GiB"
    lines = node.top(width=28).until(lambda lines: " 0 of 20 %" in lines[8])
    assert lines[9].endswith("  0 of 30 %") and len(lines[9]) < 28


def test_turns_are_shown_with_the_reason_of_a_wait_while_they_run(node: Node) -> None:
    # In the future: a reading that is older than a write counts from when it was read.
    before = time.monotonic_ns() + 60 * 10**9
    after = before + 10**9
    seconds = [10**8 * tenths for tenths in range(11)]
    node.tenants.turns(before, {"box": [0] * 4, "pod-u.main": [0] * 4}, lost_ns=seconds[3])
    terminal = node.top(width=120)
    terminal.until(lambda lines: "A box" in lines[6] and " 0 of 20 %" in lines[6])
    of = {"box": (seconds[2], 0, seconds[8], 0), "pod-u.main": (seconds[7], seconds[3], 0, 0)}
    node.tenants.turns(after, of, lost_ns=seconds[4])
    lines = terminal.until(lambda lines: "HELD" in lines[5])
    assert lines[3].endswith(" 0 % used, 50 % reserved, 10 % lost")
    assert lines[5:8] == [
        "  CONTAINER        COMPUTE    MEMORY      HELD  WAITS  POLICY",
        "A box              0 of 20 %  3 of 4 GiB  20 %  0 %    "
        "fixed; waits: share used up; 7 refusals",
        "B ml/train-0/main  0 of 30 %  2 of 8 GiB  70 %  0 %    "
        "elastic to 80 %; waits: GPU held by box",
    ]
    terminal.until(lambda lines: "HELD" not in lines[5])


def test_keys_sort_and_a_screen_that_is_too_small_scrolls(node: Node) -> None:
    node.tenants.add_record("cot", shares=[GpuShare("GPU-0", 2 * GIB, 10)])
    node.tenants.uses("cot", held=GIB)
    terminal = node.top("--sort", "memory")
    terminal.until(lambda lines: names(lines) == ["box", "ml/train-0/main", "cot"])
    terminal.press("n")
    terminal.until(lambda lines: names(lines) == ["box", "cot", "ml/train-0/main"])
    terminal.resize(40, 8)
    lines = terminal.until(lambda lines: len(lines[3]) == 40)
    assert (lines[2], lines[-1][:6]) == ("GPU 0  Soft  GPU-0", "q quit")
    terminal.press("\x1b[B" * 6)
    terminal.until(lambda lines: lines[2].startswith("A box") and "GPU 1" in lines[6])
    terminal.press("   ")
    terminal.until(lambda lines: lines[6].startswith(" 0 B of 16 GiB"))
    terminal.resize(100, 30)
    terminal.until(lambda lines: lines[2] == "GPU 0  Soft  GPU-0")
    terminal.press("q")
    assert (terminal.end(), terminal.is_as_before()) == (0, True)


def test_keys_of_htop_order_help_and_quit(node: Node) -> None:
    node.tenants.add_record("cot", shares=[GpuShare("GPU-0", 2 * GIB, 10)])
    node.tenants.uses("cot", held=GIB)
    terminal = node.top()
    terminal.until(lambda lines: names(lines) == ["box", "cot", "ml/train-0/main"])
    terminal.press("M")
    terminal.until(lambda lines: lines[0].endswith("by memory"))
    terminal.press(">")
    terminal.until(lambda lines: lines[0].endswith("by waits"))
    terminal.press("\x1b[17~")
    terminal.until(lambda lines: lines[0].endswith("by name"))
    for key in ("?", "h", "\x1bOP"):
        terminal.press(key)
        lines = terminal.until(lambda lines: lines[2] == "keys")
        assert lines[3].split() == ["q", "F10", "quit"] and "any key returns" in lines
        assert all(len(line) < 80 for line in lines[:-1])
        terminal.press("x")
        terminal.until(lambda lines: lines[2] == "GPU 0  Soft  GPU-0")
    terminal.press("\x1b[21~")
    assert (terminal.end(), terminal.is_as_before()) == (0, True)


def test_key_of_htops_tree_shows_processes_with_host_pid_and_memory(node: Node) -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        state = json.dumps({"status": "running", "pid": process.pid})
        runtime = write(f"{node.tenants.state_dir}/runtime", f"#!/bin/sh\necho '{state}'\n")
        os.chmod(runtime, 0o755)
        node.tenants.add_record("cot", shares=[GpuShare("GPU-0", GIB, 10)], runtime=[runtime])
        node.tenants.uses("cot", held=GIB // 2, pid=process.pid)
        terminal = node.top()
        terminal.until(lambda lines: names(lines) == ["box", "cot", "ml/train-0/main"])
        terminal.press("t")
        # The second reading knows how much of the time it computed.
        row = [str(process.pid), "sleep", "0", "%", "512", "MiB"]
        terminal.until(lambda lines: lines[8].split() == row)
        terminal.press("\x1b[15~")
        terminal.until(lambda lines: names(lines) == ["box", "cot", "ml/train-0/main"])
        terminal.press("q")
        assert (terminal.end(), process.kill()) == (0, None)


def test_the_agents_history_and_sensors_are_drawn(node: Node) -> None:
    points = [None, *[0.0] * 100, *[100.0] * 100]
    began = time.time()
    events = [
        {"gpu": "GPU-0", "time": began - 1500, "kind": "claimed", "name": "box"},
        {"gpu": "GPU-0", "time": began - 60, "kind": "refused", "name": "\x1b[2J"},
    ]
    tree = {
        "step_seconds": 10,
        "gpus": {"GPU-0": {"compute_percent": points}},
        "events": events,
    }
    sensors = {"temperature_celsius": 41, "power_watts": 99.6, "sm_clock_hertz": 1.5e9}
    usage = {"gpus": [{"uuid": "GPU-0", "sensors": sensors}]}
    pages = (json.dumps(page).encode() for page in (tree, usage))
    with serving(next(pages), usage=next(pages)) as address:
        with open(node.config) as file:
            settings = file.read().replace('listen = ""', f'listen = "{address}"')
        write(node.config, settings)
        terminal = node.top()
        lines = terminal.until(lambda lines: lines[3].startswith("history ["))
        assert lines[3].endswith("] 33 min: 50 %, at most 100 %")
        terminal.until(lambda lines: lines[2] == "GPU 0  Soft  GPU-0  41 °C, 100 W, 1,500 MHz")
        lines = terminal.until(lambda lines: lines[4].startswith("events"))
        assert lines[3].count("█") in range(10, 20) and lines[10].startswith("B ml/train-0/main")
        assert lines[4].count("^") == 2 and lines[4].index("]") == lines[3].index("]")
        assert lines[5] == "  refused ?[2J 1m ago, claimed box 25m ago"
        terminal.press("g")
        terminal.until(lambda lines: lines[3].startswith("compute ["))
        terminal.press("q")
        assert terminal.end() == 0


def test_a_long_reason_is_cut_before_the_containers_name(node: Node) -> None:
    pod = {**POD, "namespace": "machine-learning", "name": "ranker-7d9f8b6c5"}
    node.tenants.add_record("pod-v.main", pod=pod, shares=[GpuShare("GPU-1", GIB, 10)])
    at = time.monotonic_ns() + 60 * 10**9
    node.tenants.turns(at, {"pod-v.main": [0] * 4, "x": [0] * 4}, gpu="GPU-1")
    terminal = node.top(width=110)
    terminal.until(lambda lines: "GPU 1" in lines[9])
    of = {"pod-v.main": (10**8, 8 * 10**8, 0, 0), "x": (8 * 10**8, 0, 0, 0)}
    node.tenants.turns(at + 10**9, of, gpu="GPU-1")
    name = "machine-learning/ranker-7d9f8b6c5/main"
    lines = terminal.until(lambda lines: "waits: GPU" in lines[13])
    assert lines[13].startswith(f"A {name}  ") and len(lines[13]) == 110


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(node: Node, number: str) -> None:
    terminal = node.top()
    terminal.until(lambda lines: "GPU 0" in lines[2])
    assert not terminal.is_as_before()
    ended = terminal.end(getattr(signal, number))
    assert (-ended, terminal.is_as_before()) == (getattr(signal, number), True)


def test_stopped_top_restores_the_terminal_until_continued(node: Node) -> None:
    terminal = node.top()
    terminal.until(lambda lines: "GPU 0" in lines[2])
    terminal.press("\x1a")
    os.waitpid(terminal.pid, os.WUNTRACED)
    terminal.until(lambda _: terminal.is_as_before())
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.until(lambda lines: not terminal.is_as_before() and "GPU 0" in lines[2])
    terminal.press("q")
    assert (terminal.end(), terminal.is_as_before()) == (0, True)


def test_colour_needs_a_terminal_without_no_color_and_adds_no_meaning(
    node: Node, monkeypatch: Any
) -> None:
    def looked_twice(lines: list[str]) -> bool:
        return "box" in lines[6] and "- of" not in lines[6]

    coloured = node.top()
    lines = coloured.until(looked_twice)
    coloured.press("q")
    assert coloured.end() == 0 and b"\x1b[7;38;5;" in coloured.output
    monkeypatch.setenv("NO_COLOR", "1")
    plain = node.top()
    assert plain.until(looked_twice)[2:8] == lines[2:8]
    plain.press("q")
    assert plain.end() == 0 and not re.search(rb"\x1b\[[0-9;]*m", plain.output)


def test_once_shows_the_agents_figures_as_text_and_json(node: Node) -> None:
    text = node.prints("--once", "--interval", "0.1").splitlines()
    assert names(text) == ["box", "ml/train-0/main"] and "\x1b" not in "".join(text)
    found = json.loads(node.prints("--once", "--json", "--interval", "0.1"))
    assert found.keys() == {"time", "gpus", "tenants", "broken_records"}
    assert [gpu["tenants"] for gpu in found["gpus"]] == [2, 0]
    waited = [(entry["id"], entry["waited_percent"]) for entry in found["tenants"]]
    assert waited == [("box", 0), ("pod-u.main", 0)]


def test_json_without_once_is_a_line_for_each_sample(node: Node) -> None:
    words = node.words("--json", "--interval", "0.1")
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout
        times = [json.loads(process.stdout.readline())["time"] for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert (times, process.wait(30)) == (sorted(set(times)), -signal.SIGINT)


def test_top_without_a_terminal_names_the_options_to_use(node: Node) -> None:
    result = subprocess.run(node.words(), capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (
        1,
        "",
        "vcuda: vcuda top: shows nothing without a terminal; use --once or --json\n",
    )


def test_a_tenant_cannot_write_on_the_terminal(node: Node) -> None:
    node.tenants.add_record("odd", pod={**POD, "name": "\x1b[2Jn\u202e\n"}, created=1.0)
    node.tenants.uses("odd", held=17 * GIB)
    text = node.prints("--once", "--interval", "0.1")
    assert "its figures cannot be true" in text
    assert text.replace("\n", "").isprintable() and len(text.splitlines()) == 13


def test_broken_record_and_removed_gpu_are_shown(node: Node) -> None:
    node.tenants.add_record("lost", shares=[GpuShare("GPU-7", GIB, 10)])
    write(f"{node.tenants.ledger.allocations}/half.json", "{")
    words = node.words("--once", "--interval", "0.1")
    result = subprocess.run(words, capture_output=True, text=True)
    assert result.returncode == 1 and result.stdout.splitlines()[-5:] == [
        "GPU-7 is not seen on this host",
        "  CONTAINER  COMPUTE    MEMORY        WAITS  POLICY",
        "A lost       0 of 10 %  0 B of 1 GiB  0 %    fixed",
        "",
        "half.json is not a whole record: see 'vcuda ps'",
    ]


@pytest.mark.parametrize("driver_is_there", [False, True], ids=["no driver", "a driver of no GPU"])
def test_a_host_without_gpus_or_containers_is_shown_as_one(
    tmp_path: Path, driver_is_there: bool
) -> None:
    root = DriverRoot(tmp_path / "driver", count=0).path if driver_is_there else "/nowhere"
    bare = Node(str(tmp_path), SimpleNamespace(path=root))
    words = ("--once", "--interval", "0.1")
    head, *rest = bare.prints(*words).splitlines()
    assert (head.endswith(", 0 GPUs, 0 containers, by name"), rest) == (
        True,
        ["", "No GPU is known: 'vcuda gpus' says why."],
    )
    printed = json.loads(bare.prints("--json", *words))
    assert (printed["gpus"], printed["tenants"], printed["broken_records"]) == ([], [], [])
    bare.tenants.add_record("box", shares=[GpuShare("GPU-0", GIB, 10)])
    assert names(bare.prints(*words).splitlines()) == ["box"]
    bare.close()
