"""The native front door: who is called, with which words, for which command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unit.ground import ROOT, write
from unit.installed import Installed, Recorder
from vcuda_oci import bundle

ASKS = json.dumps({"annotations": {"vcuda.io/core": "30"}})
PLAIN = json.dumps({"process": {"env": ["PATH=/bin"]}})
START = (
    "import sys; sys.path.insert(0, '{path}'); import vcuda_oci.packed; "
    "from vcuda_oci.runtime import main; main(sys.argv[1:])"
)


class Door:
    """The launcher with a recorder in Python's place, called from a folder beside two bundles."""

    def __init__(self, folder: Any) -> None:
        self.folder = str(folder)
        self.python = Recorder(self.folder + "/python")
        self.installed = Installed(self.folder + "/prefix", self.python.path)
        self.runtime = self.installed.runtime
        self.cwd = self.folder + "/cwd"
        write(self.cwd + "/config.json", PLAIN)
        write(self.cwd + "/asking.json", ASKS)
        write(self.folder + "/plain/config.json", PLAIN)
        write(self.folder + "/plain/asking.json", PLAIN)
        write(self.folder + "/asks/config.json", ASKS)

    def reset(self) -> None:
        self.installed.configure(runtime=self.runtime.path)
        self.runtime.forget()
        self.python.forget()

    def call(self, *words: str, **options: Any) -> tuple[str, list[str]]:
        """Which of the two was called, and its argv."""
        self.runtime.forget()
        self.python.forget()
        ran = self.installed.call(*words, cwd=self.cwd, **options)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
        called = {"runtime": self.runtime.calls(), "python": self.python.calls()}
        [(who, [(argv, _, _)])] = [(who, calls) for who, calls in called.items() if calls]
        return who, argv

    def to_runtime(self, *words: str) -> tuple[str, list[str]]:
        return "runtime", [self.runtime.path, *words]

    def to_python(self, *words: str) -> tuple[str, list[str]]:
        start = START.format(path=self.installed.python_path)
        ours = ["-I", "-S", "-B", "-c", start, self.installed.settings, self.runtime.path]
        return "python", [self.python.path, *ours, *words]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Door:
    return Door(tmp_path_factory.mktemp("door"))


@pytest.fixture
def door(built: Door) -> Door:
    built.reset()
    return built


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
def test_a_creation_whose_config_may_ask_goes_to_python(door: Door, line: str) -> None:
    assert door.call(*line.split()) == door.to_python(*line.split())


@pytest.mark.parametrize("line", PLAIN_LINES)
def test_everything_else_goes_to_the_runtime_as_it_came(door: Door, line: str) -> None:
    assert door.call(*line.split()) == door.to_runtime(*line.split())


def python_would_read(door: Door, words: list[str]) -> bool:
    """Whether Python, given this line, creates from a config that asks."""
    command = bundle.Command(words)
    path = os.path.join(door.cwd, command.config_path)
    if not command.creates or not os.path.isfile(path):
        return False
    with open(path) as file:
        return file.read() == ASKS


@pytest.mark.parametrize("line", ASKING_LINES + PLAIN_LINES)
def test_both_halves_read_a_line_alike(door: Door, line: str) -> None:
    assert python_would_read(door, line.split()) == (line in ASKING_LINES)


WORDS = st.sampled_from(
    [
        *("create", "run", "restore", "state", "id", "-", "--", "", "../asks", "../plain"),
        *("--bundle", "-b", "-b=../asks", "--bundle=../asks", "--bundle=../plain", "-b../asks"),
        *("-bundle", "--bun", "-d", "-db", "-db../asks", "-detach", "---", "---b=", "--=x"),
        *("-f", "-fasking.json", "asking.json", "config.json", "--config", "--config=config.json"),
        *("--co", "--root", "--root=/r", "--log", "--log=x", "--log-format", "--lo", "--debug"),
        *("--pid-file", "--pid-file=p", "--pid", "--no-pivot", "--preserve-fds", "3"),
        "--tcp-established",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.lists(WORDS, max_size=7))
def test_both_halves_read_any_line_alike(built: Door, words: list[str]) -> None:
    expected = "python" if python_would_read(built, words) else "runtime"
    assert built.call(*words)[0] == expected


@pytest.mark.parametrize("word", ["-=x", "--=x", "---"])
def test_an_option_without_a_name_is_not_the_containers_id(word: str) -> None:
    assert bundle.Command(["create", word, "id"]).container_id == "id"


def test_both_halves_know_the_same_options() -> None:
    with open(ROOT + "/oci/launcher/arguments.h") as file:
        header = file.read()
    lists = {
        name: tuple(re.findall(r'"([^"]+)"', body))
        for name, body in re.findall(r"(\w+)\[\]\s*= \{(.*?)NULL", header, re.DOTALL)
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
def test_a_request_is_found_however_it_is_written(door: Door, content: str) -> None:
    write(door.folder + "/some/config.json", content)
    line = ["create", "-b", "../some", "id"]
    assert door.call(*line) == door.to_python(*line)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", PLAIN, r'{"args": ["<a>", "a\u0026b", "\u003c", "\u2028", "\u00e9"]}', "\\u00"],
)
def test_what_asks_for_nothing_reaches_the_runtime_to_the_byte(door: Door, content: str) -> None:
    path = write(door.folder + "/some/config.json", content)
    before = os.stat(path)
    line = ["create", "-b", "../some", "id"]
    assert door.call(*line) == door.to_runtime(*line)
    with open(path) as file:
        assert file.read() == content
    assert (os.stat(path).st_ino, os.stat(path).st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "dangling"])
def test_what_is_no_file_is_the_runtimes_to_complain_of(
    door: Door, tmp_path: Any, kind: str
) -> None:
    path = f"{tmp_path}/config.json"
    if kind == "folder":
        os.mkdir(path)
    elif kind == "pipe":
        os.mkfifo(path)  # an open would wait for ever
    elif kind == "dangling":
        os.symlink("/nowhere/vcuda", path)
    line = ["create", "-b", str(tmp_path), "id"]
    assert door.call(*line, timeout=10) == door.to_runtime(*line)


def test_a_config_that_was_not_read_whole_goes_to_python(door: Door) -> None:
    """sysfs says that a file has a page, and gives a line."""
    line = ["create", "-f", "/sys/devices/system/cpu/online", "-b", "../plain", "id"]
    assert door.call(*line) == door.to_python(*line)


def test_a_config_behind_a_symlink_is_looked_at_too(door: Door, tmp_path: Any) -> None:
    os.symlink(door.folder + "/asks/config.json", tmp_path / "config.json")
    line = ["create", "-b", str(tmp_path), "id"]
    assert door.call(*line) == door.to_python(*line)


def test_the_environment_goes_through_untouched(door: Door) -> None:
    env = {"PATH": "/usr/bin", "LD_PRELOAD": "", "X": "a=b", "PYTHONPATH": "/evil", "LC_ALL": "C"}
    for line, who in (
        (["state", "id"], door.runtime),
        (["create", "-b", "../asks", "id"], door.python),
    ):
        if who is door.runtime:
            line = ["list"]
        door.call(*line, env=env)
        assert who.calls()[0][1] == [f"{key}={value}" for key, value in env.items()]


def one_line(door: Door, **options: Any) -> str:
    ran = door.installed.call("list", cwd=door.cwd, **options)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert ran.stderr.count(b"\n") == 1
    return ran.stderr.decode().rstrip("\n")


def test_a_runtime_that_is_the_wrapper_itself_is_one_line(door: Door) -> None:
    link = door.folder + "/runc"
    if not os.path.lexists(link):
        os.symlink(door.installed.launcher, link)
    for path in (door.installed.launcher, link):
        door.installed.configure(runtime=path)
        assert one_line(door) == (
            f"vcuda-container-runtime: {path}: the low-level runtime is this wrapper itself; "
            f"set runtime in {door.installed.settings}"
        )


def test_a_runtime_that_is_not_there_is_one_line(door: Door) -> None:
    door.installed.configure(runtime="no-such-runtime")
    assert one_line(door) == (
        "vcuda-container-runtime: no-such-runtime: no such runtime in PATH; "
        "install it, or set runtime in config.toml"
    )
    door.installed.configure(runtime="/nowhere/runc")
    assert one_line(door) == (
        "vcuda-container-runtime: /nowhere/runc: cannot be run: No such file or directory; "
        "install it, or set runtime in config.toml"
    )


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_an_error_of_the_front_door_is_the_logs_last_line(
    door: Door, tmp_path: Any, log_format: str
) -> None:
    door.installed.configure(runtime="no-such-runtime")
    log = f"{tmp_path}/log"
    ran = door.installed.call(f"--log={log}", "--log-format", log_format, "create", "me")
    (said,) = ran.stderr.decode().splitlines()
    with open(log) as file:
        (line,) = file.read().splitlines()
    if log_format == "json":
        entry = json.loads(line)
        assert (entry["level"], entry["msg"]) == ("error", said)
    else:
        assert line.startswith('time="')
        assert line.endswith(f'" level=error msg="{said}"')


@pytest.mark.parametrize(
    "line",
    [
        *("--log LOG create", "--debug --log=LOG", "--log other --log LOG"),
        *("- --log LOG", "-- --log LOG", "create --log LOG", "--log LOG --log", "--root --log LOG"),
    ],
)
def test_both_halves_write_into_the_same_log(door: Door, tmp_path: Any, line: str) -> None:
    door.installed.configure(runtime="no-such-runtime")
    words = line.replace("LOG", "log").split()
    assert door.installed.call(*words, cwd=tmp_path).returncode == 1
    log = bundle.Command(words).log
    assert os.listdir(tmp_path) == ([log] if log else [])


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
    door: Door, tmp_path: Any, folder: str, value: str
) -> None:
    path = f"{tmp_path}/{folder}/recorder"
    os.mkdir(os.path.dirname(path))
    os.symlink(door.runtime.path, path)
    write(door.installed.settings, f"  runtime= {value.format(tmp_path)}\n")
    assert door.call("list") == ("runtime", [path, "list"])


def test_a_line_behind_a_long_comment_is_no_setting(door: Door) -> None:
    rest = f"runtime = '{door.runtime.path}'\n"
    for length in range(4090, 4100):
        write(door.installed.settings, "#" * length + " runtime = '/nowhere'\n" + rest)
        assert door.call("list") == door.to_runtime("list")


def test_a_runtime_named_only_is_looked_up_in_path(door: Door) -> None:
    door.installed.configure(runtime="recorder")
    argv = door.call("list", env={"PATH": f"relative:/nowhere:{door.runtime.folder}"})
    assert argv == door.to_runtime("list")


def test_without_settings_runc_is_the_runtime(door: Door, tmp_path: Any) -> None:
    os.unlink(door.installed.settings)
    os.symlink(door.runtime.path, tmp_path / "runc")
    who, argv = door.call("list", env={"PATH": str(tmp_path)})
    assert (who, argv) == ("runtime", [f"{tmp_path}/runc", "list"])
