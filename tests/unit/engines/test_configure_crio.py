"""`vcuda configure crio`: a valid handler, made like CRI-O's default one."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.files import script, write
from support.host.engine_conf import EngineConf
from vcuda_hook.engines.texts import toml_text

# As CRI-O's own packages lay it out: neither conmon nor the runtimes are in PATH.
PACKAGED = """[crio.image]
signature_policy = "/etc/crio/policy.json"

[crio.runtime]
default_runtime = "crun"

[crio.runtime.runtimes.crun]
runtime_path = "{folder}/libexec/crun"
runtime_root = "/run/crun"
monitor_path = "{folder}/libexec/conmon"
monitor_cgroup = "system.slice"
inherit_default_runtime = true
allowed_annotations = [
    "io.containers.trace-syscall",
]

[crio.runtime.runtimes.runc]
runtime_path = "{folder}/libexec/runc"
runtime_root = "/run/runc"
monitor_path = "/elsewhere/conmon"
"""


@pytest.fixture
def conf(tmp_path: Any, monkeypatch: Any) -> EngineConf:
    """CRI-O's layout, with a PATH that has neither conmon nor a runtime."""
    conf = EngineConf(str(tmp_path))
    conf.path = f"{tmp_path}/crio.conf.d/99-vcuda.conf"
    write(f"{tmp_path}/crio.conf", "")
    for name in ("conmon", "crun"):
        script(f"{tmp_path}/libexec/{name}", "#!/bin/sh\n")
    write(f"{tmp_path}/crio.conf.d/10-crio.conf", PACKAGED.format(folder=tmp_path))
    set_runtime(conf, f"{tmp_path}/libexec/crun")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    return conf


def set_runtime(conf: EngineConf, runtime: str) -> None:
    write(conf.settings, f'runtime = "{runtime}"\n')


def handler(conf: EngineConf) -> Any:
    return toml_text.parse(conf.read())["crio"]["runtime"]["runtimes"]["vcuda"]


def test_the_handler_has_the_monitor_and_the_root_of_the_default_one(
    conf: EngineConf, capsys: Any
) -> None:
    assert conf.run("crio") == 0
    assert handler(conf) == {
        "runtime_path": conf.runtime,
        "runtime_type": "oci",
        "runtime_root": "/run/crun",
        "monitor_path": f"{conf.folder}/libexec/conmon",
        "monitor_cgroup": "system.slice",
        "allowed_annotations": ["io.containers.trace-syscall"],
    }
    assert "note:" not in capsys.readouterr().out


def test_a_later_file_changes_which_handler_is_the_default(conf: EngineConf) -> None:
    write(
        f"{conf.folder}/crio.conf.d/20-more.conf",
        '[crio.runtime]\ndefault_runtime = "runc"\n[crio.runtime.runtimes.runc]\n'
        f'runtime_root = "/run/other"\nmonitor_path = "{conf.folder}/libexec/conmon"\n',
    )
    assert conf.run("crio") == 0
    assert handler(conf) == {
        "runtime_path": conf.runtime,
        "runtime_type": "oci",
        "runtime_root": "/run/other",
        "monitor_path": f"{conf.folder}/libexec/conmon",
    }


@pytest.mark.parametrize(
    ("monitor", "complaint"),
    [
        (
            'monitor_path = "/nowhere/conmon"\n',
            "CRI-O's monitor /nowhere/conmon is not a program; correct monitor_path in CRI-O's "
            "configuration",
        ),
        (
            "",
            "CRI-O's monitor, conmon, is not in PATH, and no handler names it by monitor_path; "
            "set monitor_path of CRI-O's default handler",
        ),
    ],
    ids=["not there", "not named"],
)
def test_a_handler_without_a_monitor_is_refused(
    conf: EngineConf, capsys: Any, monitor: str, complaint: str
) -> None:
    """CRI-O ends at its start where it does not find the monitor of any handler."""
    text = PACKAGED.format(folder=conf.folder)
    write(
        f"{conf.folder}/crio.conf.d/10-crio.conf",
        text.replace(f'monitor_path = "{conf.folder}/libexec/conmon"\n', monitor),
    )
    assert conf.run("crio") == 1
    assert capsys.readouterr().err == f"vcuda: {conf.path}: {complaint}\n"
    assert os.listdir(f"{conf.folder}/crio.conf.d") == ["10-crio.conf"]
    assert conf.records() == []


def test_a_runtime_that_the_wrapper_would_not_find_is_refused(
    conf: EngineConf, capsys: Any
) -> None:
    set_runtime(conf, "no-such-runtime")
    assert conf.run("crio") == 1
    assert capsys.readouterr().err == (
        "vcuda: no-such-runtime: no such runtime in PATH; set runtime = "
        f'"{conf.folder}/libexec/crun" in {conf.settings}\n'
    )
    assert not os.path.exists(conf.path)


def test_a_default_that_a_later_file_takes_away_is_refused(conf: EngineConf, capsys: Any) -> None:
    later = write(
        f"{conf.folder}/crio.conf.d/99-z.conf", '[crio.runtime]\ndefault_runtime = "crun"\n'
    )
    assert conf.run("crio", "--default") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {conf.path}: {later} sets crio.runtime.default_runtime to another value, and "
        f"counts after this file; run this with --config {conf.folder}/crio.conf.d/zz-vcuda.conf\n"
    )
    assert not os.path.exists(conf.path)
    assert conf.records() == []
    ours = f"{conf.folder}/crio.conf.d/zz-vcuda.conf"
    assert conf.run("crio", "--default", path=ours) == 0
    assert conf.run("crio", "--undo", path=ours) == 0
    assert sorted(os.listdir(f"{conf.folder}/crio.conf.d")) == ["10-crio.conf", "99-z.conf"]
