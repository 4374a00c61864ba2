"""The launcher's own errors: one line, and the last of the engine's log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from support.wrapper.launcher import Launcher
from vcuda_oci.container import bundle


def one_line(launcher: Launcher, **options: Any) -> str:
    ran = launcher.installed.call("list", cwd=launcher.cwd, **options)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert ran.stderr.count(b"\n") == 1
    return ran.stderr.decode().rstrip("\n")


def test_a_runtime_that_is_the_wrapper_itself_is_one_line(launcher: Launcher) -> None:
    link = launcher.folder + "/runc"
    if not os.path.lexists(link):
        os.symlink(launcher.installed.launcher, link)
    for path in (launcher.installed.launcher, link):
        launcher.installed.configure(runtime=path)
        assert one_line(launcher) == (
            f"vcuda-container-runtime: {path}: the low-level runtime is this wrapper itself; "
            f"set runtime in {launcher.installed.settings}"
        )


FROM_A_FILE = """
import os, sys
os.execve(os.open(sys.argv[1], os.O_RDONLY | os.O_CLOEXEC), ["runc", "list"], {})
"""


def test_the_wrapper_knows_itself_by_whatever_name_it_was_called(launcher: Launcher) -> None:
    program = launcher.installed.launcher
    launcher.installed.configure(runtime=program)
    link = launcher.folder + "/linked"
    if not os.path.lexists(link):
        os.symlink(program, link)
    calls = [
        (["runc", "list"], {"executable": program}),
        (["../linked", "list"], {"cwd": launcher.cwd}),
        (["./" + os.path.basename(program), "list"], {"cwd": os.path.dirname(program)}),
        ([sys.executable, "-c", FROM_A_FILE, program], {}),
    ]
    for words, how in calls:
        ran = subprocess.run(words, capture_output=True, timeout=10, **how)  # type: ignore[call-overload]
        assert (ran.returncode, ran.stdout) == (1, b"")
        assert ran.stderr.endswith(
            b": the low-level runtime is this wrapper itself; set runtime in "
            + launcher.installed.settings.encode() + b"\n"
        )  # fmt: skip


def test_a_runtime_that_is_not_there_is_one_line(launcher: Launcher) -> None:
    launcher.installed.configure(runtime="no-such-runtime")
    assert one_line(launcher) == (
        "vcuda-container-runtime: no-such-runtime: no such runtime in PATH; "
        "install runc or crun, or set runtime in config.toml"
    )
    launcher.installed.configure(runtime="/nowhere/runc")
    assert one_line(launcher) == (
        "vcuda-container-runtime: /nowhere/runc: cannot be run: No such file or directory; "
        "install it, or set runtime in config.toml"
    )


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_an_error_of_the_launcher_is_the_logs_last_line(
    launcher: Launcher, tmp_path: Any, log_format: str
) -> None:
    launcher.installed.configure(runtime="no-such-runtime")
    log = f"{tmp_path}/log"
    ran = launcher.installed.call(f"--log={log}", "--log-format", log_format, "create", "me")
    (stderr,) = ran.stderr.decode().splitlines()
    with open(log) as file:
        (line,) = file.read().splitlines()
    if log_format == "json":
        entry = json.loads(line)
        assert (entry["level"], entry["msg"]) == ("error", stderr)
    else:
        assert line.startswith('time="')
        assert line.endswith(f'" level=error msg="{stderr}"')


@pytest.mark.parametrize(
    "line",
    [
        "--log LOG create",
        "--debug --log=LOG",
        "--log other --log LOG",
        "- --log LOG",
        "-- --log LOG",
        "create --log LOG",
        "--log LOG --log",
        "--root --log LOG",
    ],
)
def test_both_halves_write_into_the_same_log(launcher: Launcher, tmp_path: Any, line: str) -> None:
    launcher.installed.configure(runtime="no-such-runtime")
    words = line.replace("LOG", "log").split()
    assert launcher.installed.call(*words, cwd=tmp_path).returncode == 1
    log = bundle.Command(words).log
    assert os.listdir(tmp_path) == ([log] if log else [])
