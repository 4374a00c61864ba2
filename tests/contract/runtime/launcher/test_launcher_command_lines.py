"""The launcher's C and Python halves parse command lines alike, and as the runtime does."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.runtime.launcher.test_launcher import ASKING_LINES, PLAIN_LINES
from support.files import ROOT, write
from support.wrapper.launcher import ASKS, Launcher
from vcuda_oci.container import bundle


def python_would_read(launcher: Launcher, words: list[str]) -> bool:
    """Whether Python, given this line, creates from a config that asks."""
    command = bundle.Command(words)
    path = os.path.join(launcher.cwd, command.config_path)
    if not command.creates or not os.path.isfile(path):
        return False
    with open(path) as file:
        return file.read() == ASKS


@pytest.mark.parametrize("line", ASKING_LINES + PLAIN_LINES)
def test_both_halves_read_a_line_alike(launcher: Launcher, line: str) -> None:
    assert python_would_read(launcher, line.split()) == (line in ASKING_LINES)


WORDS = st.sampled_from(
    [
        "create", "run", "restore", "state", "id", "-", "--", "", "../asks", "../plain",
        "--bundle", "-b", "-b=../asks", "--bundle=../asks", "--bundle=../plain", "-b../asks",
        "-bundle", "--bun", "-d", "-db", "-db../asks", "-detach", "---", "---b=", "--=x",
        "-f", "-fasking.json", "asking.json", "config.json", "--config", "--config=config.json",
        "--co", "--root", "--root=/r", "--log", "--log=x", "--log-format", "--lo", "--debug",
        "--pid-file", "--pid-file=p", "--pid", "--no-pivot", "--preserve-fds", "3",
        "--tcp-established",
    ]
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.lists(WORDS, max_size=7))
def test_both_halves_read_any_line_alike(built: Launcher, words: list[str]) -> None:
    expected = "python" if python_would_read(built, words) else "runtime"
    assert built.call(*words)[0] == expected


@pytest.mark.parametrize("word", ["-=x", "--=x", "---"])
def test_an_option_without_a_name_is_not_the_containers_id(word: str) -> None:
    assert bundle.Command(["create", word, "id"]).container_id == "id"


def test_both_halves_know_the_same_options() -> None:
    with open(ROOT + "/oci/launcher/handover/arguments.c") as file:
        source = file.read()
    lists = {
        name: tuple(re.findall(r'"([^"]+)"', body))
        for name, body in re.findall(r"(\w+)\[\]\s*= \{(.*?)NULL", source, re.DOTALL)
    }
    assert lists == {"global_values": bundle.GLOBAL_VALUES, "create_values": bundle.CREATE_VALUES}


NO_ROOT = json.dumps({"ociVersion": "1.0.2", "root": {"path": "/nowhere"}})
COMPLAINT = {"runc": "process property must not be empty", "crun": "no 'linux' block specified"}
RUNC_TAKES = [
    "create --bundle {b} id",
    "create -b={b} id",
    "create -bundle {b} id",
    "create id --bundle {b}",
    "-- create -b {b} id",
    "--debug create --no-pivot -b {b} id",
    "create --pid-file -b -b {b} id",
]
CRUN_TAKES = [
    "create --bundle {b} id",
    "create -b{b} id",
    "create --bundl {b} id",
    "-- create -b {b} id",
    "run -db {b} id",
    "create -f other.json -b {b} id",
    "create -b {b} -f config.json id",
    "create -b ../none -b {b} id",
]


@pytest.mark.parametrize(
    ("runtime", "line"),
    [("runc", line) for line in RUNC_TAKES] + [("crun", line) for line in CRUN_TAKES],
)
def test_a_line_is_read_as_the_runtime_itself_reads_it(
    tmp_path: Any, runtime: str, line: str
) -> None:
    """What we say it reads is the only file that is JSON, so its complaint is of another kind."""
    for place in ("cwd/config", "cwd/other", "b/config", "b/other"):
        write(f"{tmp_path}/{place}.json", "{")
    words = ["--root", f"{tmp_path}/root", *line.format(b="../b").split()]
    write(os.path.join(tmp_path, "cwd", bundle.Command(words).config_path), NO_ROOT)
    ran = subprocess.run([runtime, *words], cwd=tmp_path / "cwd", capture_output=True, text=True)
    assert ran.returncode != 0
    assert COMPLAINT[runtime] in ran.stderr
    assert bundle.Command(words).container_id == "id"
