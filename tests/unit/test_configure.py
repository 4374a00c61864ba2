"""`vcuda configure`: what it writes for each engine, what it refuses, how it goes back."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from support.faults import killed_at, without_space
from support.files import mode_of, script, write
from vcuda_hook.cli import main

CRI = 'plugins."io.containerd.grpc.v1.cri".containerd'
CRI3 = 'plugins."io.containerd.cri.v1.runtime".containerd'
REMARK = "# Added by 'vcuda configure'; with --undo it goes again."


class Desk:
    """An engine's file, settings of our own, and a runtime to name."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.settings = write(f"{folder}/vcuda/config.toml", "")
        self.runtime = script(f"{folder}/bin/vcuda-container-runtime", "")
        self.path = f"{folder}/engine/file"
        # What CRI-O reads before its drop-ins.
        write(f"{folder}/crio.conf", f'[crio.runtime]\nconmon = "{self.runtime}"\n')

    def run(self, *words: str, **options: str) -> int:
        path = options.get("path", self.path)
        where = ["--config", path, "--runtime-path", self.runtime]
        return main.main(["--config", self.settings, "configure", *words, *where])

    def write(self, text: str, mode: int = 0o644) -> str:
        return write(self.path, text, mode)

    def read(self) -> str:
        with open(self.path, newline="") as file:
            return file.read()

    def records(self) -> list[str]:
        folder = f"{self.folder}/vcuda/configured"
        return os.listdir(folder) if os.path.isdir(folder) else []


@pytest.fixture
def desk(tmp_path: Any) -> Desk:
    return Desk(str(tmp_path))


def handler(runtime: str, table: str = CRI, more: str = "", options: str = "") -> str:
    return (
        f"{REMARK}\n[{table}.runtimes.vcuda]\n"
        f'{more}  runtime_type = "io.containerd.runc.v2"\n'
        '  container_annotations = ["vcuda.io/*"]\n'
        f'[{table}.runtimes.vcuda.options]\n{options}  BinaryName = "{runtime}"\n'
    )


def test_a_new_file_of_each_engine_says_what_the_engine_needs(desk: Desk) -> None:
    expected = {
        "docker": '{\n  "runtimes": {\n    "vcuda": {\n      "path": "RUNTIME"\n    }\n  },\n'
        '  "default-runtime": "vcuda"\n}\n',
        "containerd": f"version = 2\n\n{REMARK}\n"
        f'[{CRI}.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n\n'
        + handler("RUNTIME")
        + f'\n{REMARK}\n[{CRI}]\n  default_runtime_name = "vcuda"\n',
        "crio": f'{REMARK}\n[crio.runtime.runtimes.vcuda]\n  runtime_path = "RUNTIME"\n'
        f'  runtime_type = "oci"\n\n{REMARK}\n[crio.runtime]\n  default_runtime = "vcuda"\n',
        "podman": f'{REMARK}\n[engine.runtimes]\n  vcuda = ["RUNTIME"]\n\n{REMARK}\n'
        '[engine]\n  runtime = "vcuda"\n',
    }
    for engine, text in expected.items():
        assert desk.run(engine, "--default") == 0
        assert desk.read() == text.replace("RUNTIME", desk.runtime)
        assert mode_of(desk.path) == 0o644
        assert desk.run(engine, "--undo") == 0
        assert not os.path.exists(f"{desk.folder}/engine")
        assert desk.records() == []


def test_what_is_asked_for_next_time_is_what_stands_there(desk: Desk) -> None:
    before = '{\n\t"debug": true\n}'
    desk.write(before)
    assert desk.run("docker", "--default") == 0
    assert desk.run("docker") == 0
    assert json.loads(desk.read()) == {"debug": True, "runtimes": {"vcuda": {"path": desk.runtime}}}
    once = desk.read()
    assert desk.run("docker") == 0
    assert desk.read() == once
    assert desk.run("docker", "--undo") == 0
    assert desk.read() == before


def test_an_edit_by_hand_between_two_runs_is_not_lost_by_undo(desk: Desk) -> None:
    desk.write('{"debug": true}')
    assert desk.run("docker") == 0
    desk.write(desk.read().replace("true", "false"))
    assert desk.run("docker", "--default") == 0
    assert desk.run("docker", "--undo") == 0
    assert desk.read() == '{"debug": false}'


def test_a_dry_run_shows_the_change_and_makes_none(desk: Desk, capsys: Any) -> None:
    desk.write('{\n  "debug": true\n}\n')
    assert desk.run("docker", "--dry-run") == 0
    assert capsys.readouterr().out == (
        f"--- {desk.path}\n+++ {desk.path} (new)\n"
        '@@ -1,3 +1,8 @@\n {\n-  "debug": true\n+  "debug": true,\n+  "runtimes": {\n'
        f'+    "vcuda": {{\n+      "path": "{desk.runtime}"\n+    }}\n+  }}\n }}\n'
    )
    assert desk.read() == '{\n  "debug": true\n}\n'
    assert desk.records() == []


def test_json_has_all_of_it(desk: Desk, capsys: Any) -> None:
    assert desk.run("crio", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told.pop("diff").startswith(f"--- {desk.path}\n")
    assert told == {
        "engine": "crio",
        "path": desk.path,
        "changed": True,
        "notes": [],
        "left": [],
        "then_run": "systemctl restart crio",
    }


def test_undo_of_what_was_never_done_says_so(desk: Desk, capsys: Any) -> None:
    desk.write("{}")
    assert desk.run("docker", "--undo") == 0
    assert capsys.readouterr().out == f"nothing to undo: vcuda has not edited {desk.path}\n"
    assert desk.read() == "{}"


def test_undo_reports_what_it_leaves_and_exits_with_1(desk: Desk, capsys: Any) -> None:
    desk.run("docker", "--default")
    desk.write(desk.read().replace(desk.runtime, "/opt/other"))
    capsys.readouterr()
    assert desk.run("docker", "--undo") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {desk.path}: runtimes.vcuda: was changed since, and stays; remove it by hand\n"
    )
    assert json.loads(desk.read()) == {"runtimes": {"vcuda": {"path": "/opt/other"}}}


def test_the_record_is_for_root_alone(desk: Desk) -> None:
    desk.write('{"http-proxy": "http://user:password@proxy"}', 0o600)
    assert desk.run("docker") == 0
    (name,) = desk.records()
    assert mode_of(f"{desk.folder}/vcuda/configured") == 0o700
    assert mode_of(f"{desk.folder}/vcuda/configured/{name}") == 0o600
    assert mode_of(desk.path) == 0o600


@pytest.mark.parametrize(
    ("engine", "text", "complaint"),
    [
        ("docker", '{\n "a": 1,,\n}', "FILE:2: is not JSON: "),
        ("docker", '{"runtimes": []}', "FILE: runtimes is no table; make it one, or remove it"),
        (
            "docker",
            '{"runtimes": {"vcuda": {"path": "/opt/mine"}}}',
            "FILE: runtimes.vcuda is there, but not as it has to be; remove it, and run this again",
        ),
        ("containerd", "version = 2\n[plugins", "FILE:2: is not TOML: a header that does not end"),
        (
            "containerd",
            'version = 2\ndisabled_plugins = ["cri"]\n',
            "FILE: disables the CRI plugin; take it out of disabled_plugins",
        ),
        (
            "containerd",
            f'version = 2\n[{CRI}.runtimes.vcuda]\npod_annotations = ["x", "vcuda*/co?e"]\n',
            "FILE: pod_annotations of vcuda has 'vcuda*/co?e': a pod's author could ask for any "
            "share; take it out",
        ),
        (
            "containerd",
            f'version = 3\n[{CRI3}.runtimes.gpu]\npod_annotations = ["vcuda.io/*"]\n'
            f'[{CRI3}.runtimes.gpu.options]\nBinaryName = "/opt/vcuda-container-runtime"\n',
            "FILE: pod_annotations of gpu has 'vcuda.io/*': a pod's author could ask for any "
            "share; take it out",
        ),
    ],
)
def test_what_makes_no_sense_is_one_line_and_nothing_changes(
    desk: Desk, capsys: Any, engine: str, text: str, complaint: str
) -> None:
    desk.write(text)
    assert desk.run(engine) == 1
    told = capsys.readouterr().err
    assert told.startswith("vcuda: " + complaint.replace("FILE", desk.path))
    assert told.count("\n") == 1
    assert desk.read() == text
    assert os.listdir(f"{desk.folder}/engine") == ["file"]
    assert desk.records() == []


def test_a_runtime_that_is_not_there_is_refused(desk: Desk, capsys: Any) -> None:
    os.unlink(desk.runtime)
    assert desk.run("docker") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {desk.runtime}: is no program; install vcuda, or name it by --runtime-path\n"
    )
    assert not os.path.exists(desk.path)


@pytest.mark.parametrize("engine", ["docker", "crio"])
def test_a_kill_at_any_change_leaves_the_old_file_or_the_new_one(desk: Desk, engine: str) -> None:
    """And the next run, or --undo, makes it whole."""
    before = '{"debug": true}' if engine == "docker" else "# mine\n"
    desk.write(before)
    assert desk.run(engine) == 0
    new = desk.read()
    assert desk.run(engine, "--undo") == 0
    for words, ends in ((["--json"], (before, new)), (["--undo", "--json"], (new, before))):
        at = 1
        while True:
            killed = killed_at(at, lambda: desk.run(engine, *words))  # noqa: B023
            assert desk.read() in ends
            # CRI-O would take whatever else lay in the folder for configuration.
            assert engine == "docker" or os.listdir(f"{desk.folder}/engine") == ["file"]
            if not killed:
                break
            assert desk.run(engine, "--undo") == 0
            assert desk.read() == before
            if words == ["--undo", "--json"]:
                assert desk.run(engine) == 0
            at += 1
        assert at > 6
        assert desk.read() == ends[1]


def test_without_space_nothing_changes_and_it_is_one_line(desk: Desk, capsys: Any) -> None:
    """The folder's own fsync comes when all is done, and its failure fails nothing."""
    at = 1
    while True:
        refused, answer = without_space(at, lambda: desk.run("docker"))
        told = capsys.readouterr().err
        if answer == 0:
            break
        assert (refused, answer, told.count("\n")) == (True, 1, 1)
        assert not os.path.exists(desk.path)
        at += 1
    assert (at > 6, told) == (True, "")
    assert json.loads(desk.read())["runtimes"]["vcuda"] == {"path": desk.runtime}
