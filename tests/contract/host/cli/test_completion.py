"""Completions of each program, computed by the real shells."""

from __future__ import annotations

import argparse
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.files import write
from support.needed import skip_or_fail
from vcuda_hook.cli import completion, main
from vcuda_plugin.agent import command_line
from vcuda_plugin.extender import main as extender

PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "vcuda": main.build_parser,
    "vcuda-node-agent": command_line.parser,
    "vcuda-scheduler-extender": extender._parser,
}


def script(line: str, shell: str) -> str:
    """Of the program that the line begins with."""
    return completion.script(PARSERS[line.split()[0]](), shell)


def test_vcuda_prints_its_own(capsys: Any) -> None:
    for shell in completion.SHELLS:
        assert main.main(["completion", shell]) == 0
        assert capsys.readouterr().out == script("vcuda", shell)


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("vcuda r", ["run", "resume", "rebalance", "release"]),
        ("vcuda release --a", ["--all-dead"]),
        ("vcuda doctor --", ["--help", "--json", "--bundle", "--dry-run", "--upgrade"]),
        (
            "vcuda --config x ps --",
            [
                "--help",
                "--json",
                "--quiet",
                "--format",
                "--filter",
                "--sort",
                "--processes",
                "--watch",
                "--wide",
            ],
        ),
        ("vcuda configure c", ["containerd", "crio"]),
        ("vcuda configure docker --d", ["--dry-run", "--default"]),
        ("vcuda cdi g", ["generate"]),
        ("vcuda top --sort m", ["memory"]),
        ("vcuda run --policy e", ["elastic"]),
        ("vcuda run --core 30 --placement t", ["topology"]),
        ("vcuda run --rootfs -", []),
        ("vcuda cdi generate --output -", []),
        ("vcuda limit --p", ["--policy", "--priority"]),
        ("vcuda events --f", ["--follow"]),
        ("vcuda top --", ["--help", "--json", "--once", "--interval", "--sort"]),
        ("vcuda cdi generate --w", ["--watch"]),
        ("vcuda-node-agent --k", ["--kubeconfig", "--kubelet-dir"]),
        ("vcuda-node-agent --config x --no", ["--no-door", "--node-driver-root", "--node-name"]),
        ("vcuda-scheduler-extender --tls", ["--tls-cert", "--tls-key", "--tls-client-ca"]),
    ],
)
def test_bash_completes_verbs_and_their_options(line: str, answers: list[str]) -> None:
    words = line.split()
    function = f"_{words[0].replace('-', '_')}_words"
    ask = f'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); {function}; echo "${{COMPREPLY[@]}}"; '
    result = subprocess.run(
        ["/bin/bash", "-c", script(line, "bash") + ask + "complete -p", "bash", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer, program = result.stdout.splitlines()
    assert answer.split() == answers
    assert program == f"complete -o default -F {function} {words[0]}"


@pytest.mark.parametrize("verb", ["limit", "inspect", "release", "why", "advise"])
def test_bash_completes_the_containers_that_ps_shows(verb: str, tmp_path: Any) -> None:
    script_of_ps = "echo 'CONTAINER  GPU'; echo 'web        0'; echo 'ml/train/main  0'"
    path = write(f"{tmp_path}/vcuda", f"#!/bin/sh\n{script_of_ps}\n", 0o755)
    ask = f'COMP_WORDS=(vcuda {verb} ""); COMP_CWORD=2; _vcuda_words; echo "${{COMPREPLY[@]}}"'
    result = subprocess.run(
        ["/bin/bash", "-c", script("vcuda", "bash") + ask],
        env={"PATH": f"{os.path.dirname(path)}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert {"web", "ml/train/main"} <= set(result.stdout.split())


LINES = [
    ("vcuda r", ["release", "resume", "run"]),
    ("vcuda top --", ["--interval", "--json", "--once", "--sort"]),
    ("vcuda inspect --", ["--json"]),
    ("vcuda events --", ["--follow", "--json", "--since"]),
    ("vcuda-node-agent --", ["--features-dir", "--kubelet-dir", "--no-door", "--version"]),
    ("vcuda-scheduler-extender --", ["--kubeconfig", "--lease", "--quota-config", "--tls-key"]),
]


@pytest.mark.parametrize(("line", "answers"), LINES, ids=[line for line, _ in LINES])
def test_fish_completes_verbs_and_their_options(
    line: str, answers: list[str], tmp_path: Any
) -> None:
    if shutil.which("fish") is None:
        skip_or_fail("fish is not installed")
    path = write(f"{tmp_path}/completion.fish", script(line, "fish"))
    answer = subprocess.run(
        ["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert set(answers) <= set(answer.stdout.split())


@pytest.mark.parametrize("how", ["sourced", "of fpath"])
@pytest.mark.parametrize(("line", "answers"), LINES, ids=[line for line, _ in LINES])
def test_zsh_completes_verbs_and_their_options(
    line: str, answers: list[str], tmp_path: Any, how: str
) -> None:
    """As a user types it: zsh completes on a terminal only."""
    if shutil.which("zsh") is None:
        skip_or_fail("zsh is not installed")
    path = write(f"{tmp_path}/_{line.split()[0]}", script(line, "zsh"))
    load = "autoload -U compinit && compinit -u -D"
    begin = f"{load}; source {path}" if how == "sourced" else f"fpath=({tmp_path} $fpath); {load}"
    ours, theirs = os.openpty()
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "TERM": "xterm"}
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        os.write(ours, f"{begin}; echo re''ady\n".encode())
        shown(ours, ["ready"])
        os.write(ours, f"{line}\t\t".encode())
        shown(ours, answers)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)


def shown(terminal: int, words: list[str]) -> None:
    """Waits until the terminal has shown all of them, parted or not."""
    text, deadline = "", time.monotonic() + 30
    while not all(word in text for word in words):
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, text
        text += os.read(terminal, 4096).decode(errors="replace")
