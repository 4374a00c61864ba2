"""`vcuda configure`: the settings for each engine, refusals, undo."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from support.files import mode_of
from support.host.engine_conf import CRI, CRI3, REMARK, EngineConf, handler
from support.ledger.faults import killed_at, without_space


@pytest.fixture
def conf(tmp_path: Any) -> EngineConf:
    return EngineConf(str(tmp_path))


def test_a_new_file_of_each_engine_says_what_the_engine_needs(conf: EngineConf) -> None:
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
        assert conf.run(engine, "--default") == 0
        assert conf.read() == text.replace("RUNTIME", conf.runtime)
        assert mode_of(conf.path) == 0o644
        assert conf.run(engine, "--undo") == 0
        assert not os.path.exists(f"{conf.folder}/engine")
        assert conf.records() == []


def test_second_run_replaces_the_settings(conf: EngineConf) -> None:
    before = '{\n\t"debug": true\n}'
    conf.write(before)
    assert conf.run("docker", "--default") == 0
    assert conf.run("docker") == 0
    assert json.loads(conf.read()) == {
        "debug": True,
        "runtimes": {"vcuda": {"path": conf.runtime}},
    }
    once = conf.read()
    assert conf.run("docker") == 0
    assert conf.read() == once
    assert conf.run("docker", "--undo") == 0
    assert conf.read() == before


def test_an_edit_by_hand_between_two_runs_is_not_lost_by_undo(conf: EngineConf) -> None:
    conf.write('{"debug": true}')
    assert conf.run("docker") == 0
    conf.write(conf.read().replace("true", "false"))
    assert conf.run("docker", "--default") == 0
    assert conf.run("docker", "--undo") == 0
    assert conf.read() == '{"debug": false}'


def test_a_dry_run_shows_the_change_and_makes_none(conf: EngineConf, capsys: Any) -> None:
    conf.write('{\n  "debug": true\n}\n')
    assert conf.run("docker", "--dry-run") == 0
    assert capsys.readouterr().out == (
        f"--- {conf.path}\n+++ {conf.path} (new)\n"
        '@@ -1,3 +1,8 @@\n {\n-  "debug": true\n+  "debug": true,\n+  "runtimes": {\n'
        f'+    "vcuda": {{\n+      "path": "{conf.runtime}"\n+    }}\n+  }}\n }}\n'
    )
    assert conf.read() == '{\n  "debug": true\n}\n'
    assert conf.records() == []


def test_json_has_all_of_it(conf: EngineConf, capsys: Any) -> None:
    assert conf.run("crio", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("diff").startswith(f"--- {conf.path}\n")
    assert printed == {
        "engine": "crio",
        "path": conf.path,
        "changed": True,
        "notes": [],
        "left": [],
        "then_run": "systemctl restart crio",
    }


def test_undo_without_a_record_prints_a_line(conf: EngineConf, capsys: Any) -> None:
    conf.write("{}")
    assert conf.run("docker", "--undo") == 0
    assert capsys.readouterr().out == f"nothing to undo: vcuda has not edited {conf.path}\n"
    assert conf.read() == "{}"


def test_undo_reports_what_it_leaves_and_exits_with_1(conf: EngineConf, capsys: Any) -> None:
    conf.run("docker", "--default")
    conf.write(conf.read().replace(conf.runtime, "/opt/other"))
    capsys.readouterr()
    assert conf.run("docker", "--undo") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {conf.path}: runtimes.vcuda: was changed since, and stays; remove it by hand\n"
    )
    assert json.loads(conf.read()) == {"runtimes": {"vcuda": {"path": "/opt/other"}}}


def test_the_record_is_readable_by_root_only(conf: EngineConf) -> None:
    conf.write('{"http-proxy": "http://user:password@proxy"}', 0o600)
    assert conf.run("docker") == 0
    (name,) = conf.records()
    assert mode_of(f"{conf.folder}/vcuda/configured") == 0o700
    assert mode_of(f"{conf.folder}/vcuda/configured/{name}") == 0o600
    assert mode_of(conf.path) == 0o600


@pytest.mark.parametrize(
    ("engine", "text", "complaint"),
    [
        ("docker", '{\n "a": 1,,\n}', "FILE:2: is not JSON: "),
        ("docker", '{"runtimes": []}', "FILE: runtimes is not a table; make it one, or remove it"),
        (
            "docker",
            '{"runtimes": {"vcuda": {"path": "/opt/mine"}}}',
            "FILE: runtimes.vcuda exists with another value; remove it, and run this again",
        ),
        ("containerd", "version = 2\n[plugins", "FILE:2: is not TOML: unclosed header"),
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
    conf: EngineConf, capsys: Any, engine: str, text: str, complaint: str
) -> None:
    conf.write(text)
    assert conf.run(engine) == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith("vcuda: " + complaint.replace("FILE", conf.path))
    assert stderr.count("\n") == 1
    assert conf.read() == text
    assert os.listdir(f"{conf.folder}/engine") == ["file"]
    assert conf.records() == []


def test_a_runtime_that_is_not_there_is_refused(conf: EngineConf, capsys: Any) -> None:
    os.unlink(conf.runtime)
    assert conf.run("docker") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {conf.runtime}: is not a program; install vcuda, or name it by --runtime-path\n"
    )
    assert not os.path.exists(conf.path)


@pytest.mark.parametrize("engine", ["docker", "crio"])
def test_a_kill_at_any_change_leaves_the_old_file_or_the_new_one(
    conf: EngineConf, engine: str
) -> None:
    """And the next run, or --undo, makes it whole."""
    before = '{"debug": true}' if engine == "docker" else "# mine\n"
    conf.write(before)
    assert conf.run(engine) == 0
    new = conf.read()
    assert conf.run(engine, "--undo") == 0
    for words, ends in ((["--json"], (before, new)), (["--undo", "--json"], (new, before))):
        at = 1
        while True:
            killed = killed_at(at, lambda: conf.run(engine, *words))  # noqa: B023
            assert conf.read() in ends
            # CRI-O reads every file in the folder as configuration.
            assert engine == "docker" or os.listdir(f"{conf.folder}/engine") == ["file"]
            if not killed:
                break
            assert conf.run(engine, "--undo") == 0
            assert conf.read() == before
            if words == ["--undo", "--json"]:
                assert conf.run(engine) == 0
            at += 1
        assert at > 6
        assert conf.read() == ends[1]


def test_without_space_nothing_changes_and_it_is_one_line(conf: EngineConf, capsys: Any) -> None:
    """The folder's own fsync is the last step, and its failure is ignored."""
    at = 1
    while True:
        refused, answer = without_space(at, lambda: conf.run("docker"))
        stderr = capsys.readouterr().err
        if answer == 0:
            break
        assert (refused, answer, stderr.count("\n")) == (True, 1, 1)
        assert not os.path.exists(conf.path)
        at += 1
    assert (at > 6, stderr) == (True, "")
    assert json.loads(conf.read())["runtimes"]["vcuda"] == {"path": conf.runtime}
