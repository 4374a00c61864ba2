"""`vcuda configure all --undo`: every engine's file is as before."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from support.files import script, write
from vcuda_hook.cli import main


class Host:
    """Files of three engines; two and a hook are configured for vcuda."""

    def __init__(self, folder: str) -> None:
        self.folder, self.settings = folder, write(f"{folder}/vcuda/config.toml", "")
        self.runtime = script(f"{folder}/bin/vcuda-container-runtime", "")
        self.docker = write(f"{folder}/daemon.json", '{"debug": true}\n')
        self.containerd = write(f"{folder}/containerd.toml", "# as we like it\nversion = 2\n")
        self.hooks = f"{folder}/hooks.d/vcuda.json"
        for engine, path in (("docker", self.docker), ("containerd", self.containerd)):
            assert self.run(engine, "--config", path, "--runtime-path", self.runtime) == 0

    def run(self, *words: str) -> int:
        return main.main(["--config", self.settings, "configure", *words])

    def texts(self) -> list[str]:
        found = []
        for path in (self.docker, self.containerd):
            with open(path) as file:
                found.append(file.read())
        return found


@pytest.fixture
def host(tmp_path: Any) -> Host:
    return Host(str(tmp_path))


def test_undo_removes_all_our_settings_and_nothing_else(host: Host, capsys: Any) -> None:
    capsys.readouterr()
    assert host.run("all", "--undo") == 0
    assert host.texts() == ['{"debug": true}\n', "# as we like it\nversion = 2\n"]
    assert not os.path.exists(f"{host.folder}/vcuda/configured")
    assert f"wrote {host.docker}\n" in capsys.readouterr().out
    assert host.run("all", "--undo") == 0
    assert capsys.readouterr().out == "nothing to undo: vcuda has edited no engine's file\n"


def test_hand_edited_files_stay_and_the_others_are_undone(host: Host, capsys: Any) -> None:
    edited = host.texts()[0].replace(host.runtime, "/opt/mine")
    write(host.docker, edited)
    capsys.readouterr()
    assert host.run("all", "--undo", "--json") == 1
    captured = capsys.readouterr()
    assert host.texts() == [edited, "# as we like it\nversion = 2\n"]
    changed = {entry["engine"]: entry["changed"] for entry in json.loads(captured.out)}
    assert changed == {"containerd": True, "docker": False}
    assert captured.err.startswith(f"vcuda: {host.docker}: ")
    assert captured.err.count("\n") == 1


def test_a_record_that_is_damaged_stops_no_other(host: Host, capsys: Any) -> None:
    write(f"{host.folder}/vcuda/configured/docker-0.json", "{")
    capsys.readouterr()
    assert host.run("all", "--undo") == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert host.texts() == ['{"debug": true}\n', "# as we like it\nversion = 2\n"]


@pytest.mark.parametrize("words", [[], ["--undo", "--default"], ["--undo", "--hooks"]])
def test_all_is_accepted_only_with_undo(host: Host, words: list[str], capsys: Any) -> None:
    before = host.texts()
    assert host.run("all", *words) == 1
    assert capsys.readouterr().err == ("vcuda: all: works only with --undo; use --undo alone\n")
    assert host.texts() == before
