"""The launcher: the program that it executes, and with which arguments."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.files import write
from support.wrapper.launcher import ASKS, PLAIN, Launcher

ASKING_LINES = [
    "create --bundle ../asks id",
    "create --bundle=../asks id",
    "create -b ../asks id",
    "create -b=../asks id",
    "create -bundle ../asks id",
    "create id --bundle ../asks",
    "run -b ../asks id",
    "restore --bundle ../asks id",
    "--root /r create -b ../asks id",
    "--root=/r --log=l --log-format json --debug create -b ../asks id",
    "--systemd-cgroup create -b ../asks id",
    "-- create -b ../asks id",
    "create -b ../asks -- id",
    "create --pid-file -b -b ../asks id",
    "create --no-pivot --preserve-fds 3 --console-socket s -b ../asks id",
    "create -b ../plain -b ../asks id",
    "create -b ../plain --bundle ../asks id",
    "create -b../asks id",
    "create --bundl ../asks id",
    "run -db ../asks id",
    "run -d -b../asks id",
    "create -f asking.json -b ../plain id",
    "create --config=../asks/config.json id",
    "create -b ../asks -f config.json id",
    "restore --tcp-established -b ../asks id",
    "create -b ../asks",
]
PLAIN_LINES = [
    "",
    "--version",
    "state create -b ../asks",
    "start create",
    "delete --force create",
    "exec -b ../asks id create",
    "--root create state -b ../asks",
    "--log create --bundle ../asks id",
    "create id",
    "create -b ../plain id",
    "create -b ../missing id",
    "create -b",
    "create --bundle= id",
    "create -b ../asks --bundle ../plain id",
    "create -- -b ../asks",
    "create --pid-file --bundle=../asks id",
    "-- --root create -b ../asks id",
    "create -b ../asks -f ../plain/config.json id",
    "CREATE -b ../asks id",
    "- create -b ../asks",
]


@pytest.mark.parametrize("line", ASKING_LINES)
def test_a_creation_with_a_config_that_may_ask_goes_to_python(
    launcher: Launcher, line: str
) -> None:
    assert launcher.call(*line.split()) == launcher.to_python(*line.split())


@pytest.mark.parametrize("line", PLAIN_LINES)
def test_every_other_call_reaches_the_runtime_unchanged(launcher: Launcher, line: str) -> None:
    assert launcher.call(*line.split()) == launcher.to_runtime(*line.split())


@pytest.mark.parametrize(
    "content",
    [
        '{"annotations": {"vcuda.io/core": "30"}}',
        '{"process": {"env": ["VCUDA_CORE=30"]}}',
        '{"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}}',
        '{"annotations": {"vcuda.io/priority": "5"}}',
        '{"process": {"env": ["VCUDA_CORE_LIMIT=60"]}}',
        r'{"annotations": {"\u0076cuda.io/core": "30"}}',
        r'{"annotations": {"vcud\u0061.io/core": "30"}}',
        r'{"process": {"env": ["VCUD\u0041_CORE=30"]}}',
        r'{"process": {"env": ["VCUDA\u005fCORE=30"]}}',
        r'{"process": {"env": ["NVIDIA\u005FVISIBLE_DEVICES=all"]}}',
        '{"x": "' + "y" * 3_000_000 + '", "annotations": {"vcuda.io/core": "30"}}',
    ],
)  # fmt: skip
def test_a_request_is_found_however_it_is_written(launcher: Launcher, content: str) -> None:
    write(launcher.folder + "/some/config.json", content)
    line = ["create", "-b", "../some", "id"]
    assert launcher.call(*line) == launcher.to_python(*line)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", PLAIN, r'{"args": ["<a>", "a\u0026b", "\u003c", "\u2028", "\u00e9"]}', "\\u00"],
)
def test_a_config_without_a_request_reaches_the_runtime_to_the_byte(
    launcher: Launcher, content: str
) -> None:
    path = write(launcher.folder + "/some/config.json", content)
    before = os.stat(path)
    line = ["create", "-b", "../some", "id"]
    assert launcher.call(*line) == launcher.to_runtime(*line)
    with open(path) as file:
        assert file.read() == content
    assert (os.stat(path).st_ino, os.stat(path).st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "dangling"])
def test_a_config_that_is_no_file_is_left_to_the_runtime(
    launcher: Launcher, tmp_path: Any, kind: str
) -> None:
    path = f"{tmp_path}/config.json"
    if kind == "folder":
        os.mkdir(path)
    elif kind == "pipe":
        os.mkfifo(path)  # an open would wait for ever
    elif kind == "dangling":
        os.symlink("/nowhere/vcuda", path)
    line = ["create", "-b", str(tmp_path), "id"]
    assert launcher.call(*line, timeout=10) == launcher.to_runtime(*line)


def test_a_config_that_was_not_read_whole_goes_to_python(launcher: Launcher) -> None:
    """A sysfs file has the size of a page and gives one line."""
    line = ["create", "-f", "/sys/devices/system/cpu/online", "-b", "../plain", "id"]
    assert launcher.call(*line) == launcher.to_python(*line)


def test_a_config_behind_a_symlink_is_looked_at_too(launcher: Launcher, tmp_path: Any) -> None:
    os.symlink(launcher.folder + "/asks/config.json", tmp_path / "config.json")
    line = ["create", "-b", str(tmp_path), "id"]
    assert launcher.call(*line) == launcher.to_python(*line)


def test_the_environment_is_passed_unchanged(launcher: Launcher) -> None:
    env = {"PATH": "/usr/bin", "LD_PRELOAD": "", "X": "a=b", "PYTHONPATH": "/evil", "LC_ALL": "C"}
    for line, called in (
        (["state", "id"], launcher.runtime),
        (["create", "-b", "../asks", "id"], launcher.python),
    ):
        if called is launcher.runtime:
            line = ["list"]
        launcher.call(*line, env=env)
        assert called.calls()[0][1] == [f"{key}={value}" for key, value in env.items()]


@pytest.mark.parametrize(
    ("folder", "value"),
    [
        ("it's", '"{}/it\'s/recorder"'),
        ('say "x"', "'{}/say \"x\"/recorder' # as it is"),
        ('say "x"', r'"{}/say \"x\"/recorder"'),
        ("back\\slash\t", r'"{}/back\\slash\t/recorder"'),
    ],
)
def test_a_setting_is_read_as_the_toml_that_it_is(
    launcher: Launcher, tmp_path: Any, folder: str, value: str
) -> None:
    path = f"{tmp_path}/{folder}/recorder"
    os.mkdir(os.path.dirname(path))
    os.symlink(launcher.runtime.path, path)
    write(launcher.installed.settings, f"  runtime= {value.format(tmp_path)}\n")
    assert launcher.call("list") == ("runtime", [path, "list"])


def test_a_line_behind_a_long_comment_is_no_setting(launcher: Launcher) -> None:
    rest = f"runtime = '{launcher.runtime.path}'\n"
    for length in range(4090, 4100):
        write(launcher.installed.settings, "#" * length + " runtime = '/nowhere'\n" + rest)
        assert launcher.call("list") == launcher.to_runtime("list")


@pytest.mark.parametrize("size", [65_534, 65_535, 65_536, 300_000])
def test_a_setting_counts_however_much_stands_before_it(launcher: Launcher, size: int) -> None:
    last = f"runtime = '{launcher.runtime.path}'"
    write(launcher.installed.settings, "# vcuda\n".ljust(size - len(last) - 1, "#") + "\n" + last)
    assert os.path.getsize(launcher.installed.settings) == size
    assert launcher.call("list") == launcher.to_runtime("list")


@pytest.mark.parametrize("size", [65_534, 65_535, 65_536, 300_000])
def test_a_request_counts_however_much_stands_before_it(launcher: Launcher, size: int) -> None:
    write(launcher.folder + "/some/config.json", ASKS.rjust(size))
    line = ["create", "-b", "../some", "id"]
    assert launcher.call(*line) == launcher.to_python(*line)


def test_a_string_that_ends_on_another_line_is_no_setting(launcher: Launcher) -> None:
    rest = f"runtime = '{launcher.runtime.path}'\n"
    write(launcher.installed.settings, "runtime = '/nowhere\n# it's\n" + rest)
    assert launcher.call("list") == launcher.to_runtime("list")


def test_a_runtime_named_only_is_looked_up_in_path(launcher: Launcher) -> None:
    launcher.installed.configure(runtime="recorder")
    argv = launcher.call("list", env={"PATH": f"relative:/nowhere:{launcher.runtime.folder}"})
    assert argv == launcher.to_runtime("list")


def test_without_settings_runc_is_the_runtime(launcher: Launcher, tmp_path: Any) -> None:
    os.unlink(launcher.installed.settings)
    os.symlink(launcher.runtime.path, tmp_path / "runc")
    called, argv = launcher.call("list", env={"PATH": str(tmp_path)})
    assert (called, argv) == ("runtime", [f"{tmp_path}/runc", "list"])
