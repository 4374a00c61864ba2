"""`vcuda configure crio`: a handler that CRI-O can start with, made like its default one."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.files import script, write
from unit.test_configure import Desk
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
def desk(tmp_path: Any, monkeypatch: Any) -> Desk:
    """CRI-O's layout, with a PATH that has neither conmon nor a runtime."""
    desk = Desk(str(tmp_path))
    desk.path = f"{tmp_path}/crio.conf.d/99-vcuda.conf"
    write(f"{tmp_path}/crio.conf", "")
    for name in ("conmon", "crun"):
        script(f"{tmp_path}/libexec/{name}", "#!/bin/sh\n")
    write(f"{tmp_path}/crio.conf.d/10-crio.conf", PACKAGED.format(folder=tmp_path))
    set_runtime(desk, f"{tmp_path}/libexec/crun")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    return desk


def set_runtime(desk: Desk, runtime: str) -> None:
    write(desk.settings, f'runtime = "{runtime}"\n')


def handler(desk: Desk) -> Any:
    return toml_text.parse(desk.read())["crio"]["runtime"]["runtimes"]["vcuda"]


def test_the_handler_has_the_monitor_and_the_root_of_the_default_one(
    desk: Desk, capsys: Any
) -> None:
    assert desk.run("crio") == 0
    assert handler(desk) == {
        "runtime_path": desk.runtime,
        "runtime_type": "oci",
        "runtime_root": "/run/crun",
        "monitor_path": f"{desk.folder}/libexec/conmon",
        "monitor_cgroup": "system.slice",
        "allowed_annotations": ["io.containers.trace-syscall"],
    }
    assert "note:" not in capsys.readouterr().out


def test_a_later_file_changes_which_handler_is_the_default(desk: Desk) -> None:
    write(
        f"{desk.folder}/crio.conf.d/20-more.conf",
        '[crio.runtime]\ndefault_runtime = "runc"\n[crio.runtime.runtimes.runc]\n'
        f'runtime_root = "/run/other"\nmonitor_path = "{desk.folder}/libexec/conmon"\n',
    )
    assert desk.run("crio") == 0
    assert handler(desk) == {
        "runtime_path": desk.runtime,
        "runtime_type": "oci",
        "runtime_root": "/run/other",
        "monitor_path": f"{desk.folder}/libexec/conmon",
    }


@pytest.mark.parametrize(
    ("monitor", "complaint"),
    [
        (
            'monitor_path = "/nowhere/conmon"\n',
            "CRI-O's monitor /nowhere/conmon is no program; correct monitor_path in CRI-O's "
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
    desk: Desk, capsys: Any, monitor: str, complaint: str
) -> None:
    """CRI-O ends at its start where it does not find the monitor of any handler."""
    text = PACKAGED.format(folder=desk.folder)
    write(
        f"{desk.folder}/crio.conf.d/10-crio.conf",
        text.replace(f'monitor_path = "{desk.folder}/libexec/conmon"\n', monitor),
    )
    assert desk.run("crio") == 1
    assert capsys.readouterr().err == f"vcuda: {desk.path}: {complaint}\n"
    assert os.listdir(f"{desk.folder}/crio.conf.d") == ["10-crio.conf"]
    assert desk.records() == []


def test_a_runtime_that_the_wrapper_would_not_find_is_refused(desk: Desk, capsys: Any) -> None:
    set_runtime(desk, "no-such-runtime")
    assert desk.run("crio") == 1
    assert capsys.readouterr().err == (
        "vcuda: no-such-runtime: no such runtime in PATH; set runtime = "
        f'"{desk.folder}/libexec/crun" in {desk.settings}\n'
    )
    assert not os.path.exists(desk.path)


def test_a_default_that_a_later_file_takes_away_is_refused(desk: Desk, capsys: Any) -> None:
    later = write(
        f"{desk.folder}/crio.conf.d/99-z.conf", '[crio.runtime]\ndefault_runtime = "crun"\n'
    )
    assert desk.run("crio", "--default") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {desk.path}: {later} sets crio.runtime.default_runtime to another value, and "
        f"counts after this file; run this with --config {desk.folder}/crio.conf.d/zz-vcuda.conf\n"
    )
    assert not os.path.exists(desk.path)
    assert desk.records() == []
    ours = f"{desk.folder}/crio.conf.d/zz-vcuda.conf"
    assert desk.run("crio", "--default", path=ours) == 0
    assert desk.run("crio", "--undo", path=ours) == 0
    assert sorted(os.listdir(f"{desk.folder}/crio.conf.d")) == ["10-crio.conf", "99-z.conf"]
