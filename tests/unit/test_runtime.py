"""The wrapper from its front door to the low-level runtime, without an engine."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from unit.driver_root import VERSION, DriverRoot
from unit.ground import GIB, ROOT, left_in, mode_of, record, shares_of, write
from unit.installed import WARNINGS, Installed
from vcuda_oci.allocation import GpuShare
from vcuda_oci.claim import Rules, limits_page
from vcuda_oci.ledger import Ledger
from vcuda_oci.pages_read import read_limits

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/root", "X": "a=b"}
SPEC = {
    "ociVersion": "1.0.2",
    "process": {"args": ["true"], "env": ["PATH=/bin"]},
    "root": {"path": "rootfs"},
    "linux": {"newField": [1, {"kept": None}]},
}
HALF = {"vcuda.io/core": "50", "vcuda.io/memory": "4GiB"}
HALF_SHARE = [GpuShare("GPU-0", 4 * GIB, 50)]
CONTAINERD = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.sandbox-uid": "uid1",
    "io.kubernetes.cri.sandbox-namespace": "team",
    "io.kubernetes.cri.sandbox-name": "web",
    "io.kubernetes.cri.container-name": "main",
    "io.kubernetes.cri.sandbox-id": "sandbox1",
}


def asking(annotations: Any = HALF, *env: str) -> dict[str, Any]:
    return {**SPEC, "annotations": annotations, "process": {"env": ["PATH=/bin", *env]}}


def by_env(*env: str) -> dict[str, Any]:
    return asking({}, *env)


class Node:
    """A driver root, the installed wrapper, a bundle, and what came of a create."""

    def __init__(self, installed: Installed, driver: DriverRoot, folder: Any) -> None:
        self.installed, self.driver, self.folder = installed, driver, str(folder)
        self.runtime = installed.runtime
        self.runtime.forget()
        write(self.runtime.folder + "/answers", "")
        self.ledger = Ledger(self.folder + "/state")
        self.bundle = self.folder + "/bundle"
        os.makedirs(self.bundle + "/rootfs/usr/lib64")
        self.config = self.bundle + "/config.json"
        self.settings = {
            "runtime": self.runtime.path,
            "state_dir": self.ledger.state_dir,
            "driver_root": driver.path,
        }
        self.moved = False
        self.configure()

    def configure(self, **settings: str) -> None:
        self.moved = self.moved or "state_dir" in settings
        self.installed.configure(**{**self.settings, **settings})

    def create(self, spec: Any, *options: str, id: str = "box", **rest: Any) -> tuple[int, str]:
        """Exit status and stderr."""
        write(self.config, spec if isinstance(spec, (str, bytes)) else json.dumps(spec), 0o640)
        words = [*options, "create", "--bundle", self.bundle, id]
        ran = self.installed.call(*words, env=ENV, **rest)
        return ran.returncode, ran.stderr.decode()

    def edited(self) -> Any:
        with open(self.config) as file:
            return json.load(file)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Its Python tells by a line in `started` that the front door had to start it."""
    prefix = str(tmp_path_factory.mktemp("prefix"))
    python = prefix + "/python"
    source = [f'-DSTARTED="{python}.started"', ROOT + "/tests/unit/told_python.c"]
    subprocess.run(["gcc", *WARNINGS, "-o", python, *source], check=True)
    return Installed(prefix, python)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> DriverRoot:
    return DriverRoot(tmp_path_factory.mktemp("driver"), count=2)


@pytest.fixture(params=["by python", "by the door"])
def node(request: Any, installed: Installed, driver: DriverRoot, tmp_path: Any) -> Iterator[Node]:
    """Behind the front door: Python, started each time, or a process that is awake already."""
    node, started = Node(installed, driver, tmp_path), installed.python + ".started"
    if request.param == "by python":
        yield node
        return
    write(started, "")
    with installed.door():
        yield node
    with open(started) as lines:
        # A test that hides the door behind another state-dir is answered by Python.
        assert lines.read() == "" or node.moved


def test_a_request_becomes_a_record_and_an_edited_config(node: Node) -> None:
    options = ["--root", "/r", "--log", node.folder + "/log", "--debug"]
    assert node.create(asking(), *options) == (0, "")
    spec, lib = node.edited(), node.installed.prefix + "/lib/vcuda"
    assert {key: spec[key] for key in ("ociVersion", "process", "root", "annotations")} == {
        key: asking()[key] for key in ("ociVersion", "process", "root", "annotations")
    }
    assert spec["linux"]["newField"] == [1, {"kept": None}]
    assert [
        (found["path"], found["major"], found["minor"]) for found in spec["linux"]["devices"]
    ] == [
        ("/dev/nvidia0", 195, 0),
        ("/dev/nvidiactl", 195, 255),
        ("/dev/nvidia-uvm", 510, 0),
        ("/dev/nvidia-uvm-tools", 510, 1),
    ]
    mounts = {mount["destination"]: mount["source"] for mount in spec["mounts"]}
    folder, own = node.driver.folder, "/usr/local/vcuda"
    assert mounts == {
        "/usr/lib64/libcuda.so": lib + "/libvcuda.so.1",
        "/usr/lib64/libcuda.so.1": lib + "/libvcuda.so.1",
        f"/usr/lib64/libcuda.so.{VERSION}": lib + "/libvcuda.so.1",
        "/usr/lib64/libnvidia-ml.so.1": lib + "/libvcuda.so.1",
        f"/usr/lib64/libnvidia-ml.so.{VERSION}": lib + "/libvcuda.so.1",
        own + "/driver/cuda": f"{folder}/libcuda.so.{VERSION}",
        own + "/driver/nvml": f"{folder}/libnvidia-ml.so.{VERSION}",
        "/usr/bin/nvidia-smi": node.driver.path + "/usr/bin/nvidia-smi",
        own + "/limits": f"{node.ledger.containers}/box/limits",
        own + "/usage": f"{node.ledger.containers}/box/usage",
    }
    assert "hooks" not in spec  # the front door sees the container's delete
    held = node.ledger.get("box")
    assert held
    assert (held.shares, held.runtime) == (HALF_SHARE, [node.runtime.path, "--root", "/r"])
    assert mode_of(node.config) == 0o640
    assert sorted(os.listdir(node.bundle)) == ["config.json", "rootfs"]
    assert not os.path.exists(node.folder + "/log")


def test_what_the_front_door_sees_no_delete_of_gets_a_poststop_hook(node: Node) -> None:
    """A `run` deletes by itself; a pod's container keeps its share, and its end is told."""
    pod = asking({**CONTAINERD, **HALF})
    for verb, spec, holder in (("run", asking(), "box"), ("create", pod, "pod-uid1.main")):
        write(node.config, json.dumps(spec))
        ran = node.installed.call(verb, "--bundle", node.bundle, "box", env=ENV)
        assert (ran.returncode, ran.stderr) == (0, b"")
        hook = node.installed.prefix + "/bin/vcuda-container-hook"
        assert [found["args"] for found in node.edited()["hooks"]["poststop"]] == [
            [hook, "--config", node.installed.settings, "poststop", holder]
        ]


def test_whether_copies_are_metered_is_told_to_the_next_container(node: Node) -> None:
    for setting, metered in (("no", False), ("yes", True)):
        node.configure(meter_copies=setting)
        assert node.create(asking(), id=setting) == (0, "")
        with open(f"{node.ledger.containers}/{setting}/limits", "rb") as page:
            assert read_limits(page.read()).meter_copies == metered


def test_the_runtime_gets_the_callers_words_env_and_signals(node: Node) -> None:
    """LC_ALL is unset: Python sets LC_CTYPE for itself then, and ignores SIGPIPE."""
    assert node.create(asking(), "--systemd-cgroup") == (0, "")
    words = ["--systemd-cgroup", "create", "--bundle", node.bundle, "box"]
    [(argv, environ, ignored)] = node.runtime.calls()
    assert argv == [node.runtime.path, *words]
    assert environ == [f"{key}={value}" for key, value in ENV.items()]
    assert ignored & (1 << (signal.SIGPIPE - 1)) == 0
    assert ignored & (1 << (signal.SIGXFSZ - 1)) == 0


def test_no_file_of_ours_is_left_open_in_the_runtime(node: Node) -> None:
    script = write(node.folder + "/list", f"#!/bin/sh\nls /proc/$$/fd >{node.folder}/fds\n", 0o755)
    node.configure(runtime=script)
    assert node.create(asking()) == (0, "")
    with open(node.folder + "/fds") as file:
        fds = file.read().split()
    # Those from 10 on are the shell's own, for its script and its redirection.
    assert {fd for fd in fds if len(fd) == 1} == {"0", "1", "2"}


def test_a_request_by_env_counts(node: Node) -> None:
    assert node.create(by_env("VCUDA_CORE=50", "VCUDA_MEMORY=4GiB")) == (0, "")
    assert shares_of(node.ledger) == {"box": HALF_SHARE}


def test_a_pod_is_known_by_its_engine_and_comes_back_to_its_share(node: Node) -> None:
    for id in ("c1", "c2"):
        assert node.create(asking({**CONTAINERD, **HALF}), id=id) == (0, "")
        assert shares_of(node.ledger) == {"pod-uid1.main": HALF_SHARE}
        held = node.ledger.get("pod-uid1.main")
        assert held
        assert held.container_id == id


def test_a_second_create_from_the_same_bundle_edits_once(node: Node) -> None:
    assert node.create(asking()) == (0, "")
    first = node.edited()
    assert node.create(first) == (0, "")
    assert node.edited() == first


def test_two_creates_at_once_from_one_bundle_both_leave_a_whole_config(node: Node) -> None:
    node.create(asking())
    expected = node.edited()
    words = [node.installed.launcher, "create", "--bundle", node.bundle, "box"]
    for _ in range(5):
        write(node.config, json.dumps(asking()))
        both = [subprocess.Popen(words, env=ENV, stderr=subprocess.PIPE) for _ in range(2)]
        answers = [process.communicate()[1] for process in both]
        assert [process.returncode for process in both].count(0) >= 1
        assert all(b"Traceback" not in answer for answer in answers)
        assert node.edited() == expected
        assert sorted(os.listdir(node.bundle)) == ["config.json", "rootfs"]


def test_a_config_behind_a_symlink_is_edited_in_the_bundle_only(node: Node) -> None:
    template = write(node.folder + "/template.json", json.dumps(asking()), 0o640)
    os.symlink(template, node.config)
    ran = node.installed.call("create", "--bundle", node.bundle, "box", env=ENV)
    assert (ran.returncode, ran.stderr) == (0, b"")
    with open(template) as file:
        assert json.load(file) == asking()
    assert not os.path.islink(node.config)
    assert node.edited()["mounts"]
    assert mode_of(node.config) == 0o640


SANDBOX = {**CONTAINERD, **HALF, "io.kubernetes.cri.container-type": "sandbox"}
BAD_SETTINGS = "runtme = 'x'\n"


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        (SPEC, {}),
        (asking(SANDBOX), {}),
        (asking({"vcuda.io/note": "x"}), {}),
        (by_env("VCUDA_CORE=50"), {"accept_request_from_env": "never"}),
        (by_env("NVIDIA_VISIBLE_DEVICES=void"), {}),
        (asking(CONTAINERD, "VCUDA_CORE=50"), {"accept_request_from_env": "always"}),
        (asking(CONTAINERD, "NVIDIA_VISIBLE_DEVICES=all"), {}),
        (json.dumps(asking(CONTAINERD, "NVIDIA_VISIBLE_DEVICES=all"), indent=3), {}),
        (
            {
                **by_env("NVIDIA_VISIBLE_DEVICES=all"),
                "linux": {"resources": {"devices": [{"allow": True, "access": "rwm"}]}},
            },
            {},
        ),
        ('["vcuda"]', {}),
    ],
    ids=[
        "no request",
        "a sandbox",
        "an annotation that is none",
        "env never counts",
        "void",
        "a pod's env",
        "a pod of a CUDA image",
        "the same, in another layout",
        "a privileged container of a CUDA image",
        "no object",
    ],
)
def test_a_container_without_a_request_that_counts_notices_nothing(
    node: Node, spec: Any, settings: dict[str, str]
) -> None:
    node.configure(**settings)
    assert node.create(spec) == (0, "")
    with open(node.config) as file:
        assert file.read() == (spec if isinstance(spec, str) else json.dumps(spec))
    assert len(node.runtime.calls()) == 1
    assert not os.path.exists(node.ledger.allocations)


@pytest.mark.parametrize(
    "spec", [SPEC, asking(SANDBOX), asking(CONTAINERD, "NVIDIA_VISIBLE_DEVICES=all")]
)
def test_a_mistake_in_the_settings_stops_no_container_that_asked_for_nothing(
    node: Node, spec: Any
) -> None:
    with open(node.installed.settings, "a") as file:
        file.write(BAD_SETTINGS)
    assert node.create(spec) == (0, "")
    assert len(node.runtime.calls()) == 1


def test_an_odd_container_id_matters_only_to_a_request_that_counts(node: Node) -> None:
    node.configure(accept_request_from_env="never")
    assert node.create(by_env("NVIDIA_VISIBLE_DEVICES=all"), id="a,b") == (0, "")
    assert node.create(asking(), id="a,b")[0] == 1


def take_all(node: Node) -> None:
    whole = [GpuShare(f"GPU-{index}", 16 * GIB, 100) for index in (0, 1)]
    mine = [os.getpid(), _start_of(os.getpid())]
    _hold(node, record("other", shares=whole, claimant=mine))


def _start_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def _hold(node: Node, allocation: Any) -> None:
    with node.ledger:
        node.ledger.write(allocation, limits_page(allocation, Rules()))


def hold_box(node: Node) -> None:
    mine = [os.getpid(), _start_of(os.getpid())]
    words = [node.runtime.path]
    _hold(node, record("box", claimant=mine, runtime=words))


def cut_a_record(node: Node) -> None:
    take_all(node)
    path = node.ledger.allocations + "/other.json"
    with open(path) as file:
        text = file.read()
    write(path, text[: len(text) // 2])


def fill_the_disk(node: Node) -> None:
    """A file system of 32 KiB has no room for the pages. Unmounted at the test's end."""
    node.moved = True
    os.makedirs(node.ledger.state_dir, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32k", "none", node.ledger.state_dir], check=True
    )


def nothing(node: Node) -> None:
    pass


NUMBER = "write a whole number from 1: 30 is 30 % of a GPU, 100 one whole GPU"
Prepare = Callable[[Node], None]
BAD_INPUT: list[tuple[str, Any, Prepare, str]] = [
    ("core 0", by_env("VCUDA_CORE=0"), nothing, f"env: core cannot be '0'; {NUMBER}"),
    ("core 101x", by_env("VCUDA_CORE=101x"), nothing, f"env: core cannot be '101x'; {NUMBER}"),
    (
        "memory above the GPU",
        by_env("VCUDA_CORE=30", "VCUDA_MEMORY=17GiB"),
        nothing,
        "placement: largest free share is 100 % and 16.0 GiB on GPU-0; 30 % and 17.0 GiB asked; "
        "ask for less, or free a share",
    ),
    (
        "an unknown GPU",
        by_env("VCUDA_CORE=30", "VCUDA_GPU=7"),
        nothing,
        "placement: no GPU '7' here; there is 0 (GPU-0), 1 (GPU-1); ask for less, or free a share",
    ),
    (
        "an unknown key in config.toml",
        asking(),
        lambda node: node.configure(plcement="spread"),
        "{settings}:4: unknown key 'plcement'; did you mean 'placement'?",
    ),
    (
        "malformed JSON",
        '{"annotations": {"vcuda.io/core": "30",}}',
        nothing,
        "{config}: is not JSON: {json}; mend it, or let the engine write it",
    ),
    (
        "endless JSON",
        '{"vcuda": ' + "[" * 200_000,
        nothing,
        "{config}: is not JSON: nested too deeply; mend it, or let the engine write it",
    ),
    (
        "a spec of the wrong kinds",
        {**asking(), "mounts": {}},
        nothing,
        "config.json: 'mounts' is not a list; mend it as the OCI spec says",
    ),
    (
        "a record cut in half",
        asking(),
        cut_a_record,
        "{allocations}/other.json: is not a whole record ({cut}); "
        "run 'vcuda release other' if its container is gone",
    ),
    (
        "no driver root",
        asking(),
        lambda node: node.configure(driver_root="/nowhere"),
        "/nowhere: no NVIDIA driver: libcuda.so.1 is in no library folder; install the driver, "
        "or set driver-root in config.toml to the folder that holds it",
    ),
    (
        "a full disk",
        asking(),
        fill_the_disk,
        "{state}: cannot be written: No space left on device; free space there, or set state-dir",
    ),
    (
        "no place for the ledger",
        asking(),
        lambda node: node.configure(state_dir="/dev/null/x"),
        "/dev/null/x: cannot be written: Not a directory; free space there, or set state-dir",
    ),
    (
        "all is taken",
        asking(),
        take_all,
        "placement: largest free share is 0 % and 0.0 GiB on GPU-0; 50 % and 4.0 GiB asked; "
        "ask for less, or free a share",
    ),
    (
        "the same container, claimed at this moment with another request",
        asking(),
        hold_box,
        "box: container box of '{runtime}' lives and holds its share; "
        "stop it, or run 'vcuda release box' if it is gone",
    ),
    (
        "a name with a line break",
        asking({"vcuda.io/core": "1\n2"}),
        nothing,
        f"annotations: core cannot be '1?2'; {NUMBER}",
    ),
]


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(
    ("spec", "prepare", "expected"),
    [case[1:] for case in BAD_INPUT],
    ids=[case[0] for case in BAD_INPUT],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    node: Node, spec: Any, prepare: Prepare, expected: str, log_format: str
) -> None:
    log = write(node.folder + "/log", "a line of the engine's\n")
    prepare(node)
    try:
        before = left_in(node.ledger.state_dir)
        status, line = node.create(spec, "--log", log, "--log-format=" + log_format)
        after = set(left_in(node.ledger.state_dir)) - {"host.json"}
    finally:
        if prepare is fill_the_disk:
            subprocess.run(["umount", node.ledger.state_dir], check=True)
    assert status == 1
    assert after == set(before)
    assert line.count("\n") == 1
    line = line.rstrip("\n")
    for name, value in {
        "settings": node.installed.settings,
        "config": node.config,
        "allocations": node.ledger.allocations,
        "runtime": node.runtime.path,
    }.items():
        expected = expected.replace("{" + name + "}", value)
    prefix = "vcuda-container-runtime: "
    for hole in ("{json}", "{cut}", "{state}"):  # words of Python's json, and which write it was
        if hole in expected:
            start, end = expected.split(hole)
            assert line.startswith(prefix + start)
            assert line.endswith(end)
            expected = line[len(prefix) :]
    assert line == prefix + expected
    with open(log) as file:
        first, last = file.read().splitlines()
    assert first == "a line of the engine's"
    if log_format == "json":
        entry = json.loads(last)
        # Some are refused before it is known whose they are.
        assert entry.pop("allocation", "box") == "box"
        assert (sorted(entry), entry["level"], entry["msg"]) == (
            ["level", "msg", "time"],
            "error",
            line,
        )
    else:
        assert last.startswith('time="')
        assert f" level=error msg={json.dumps(line)}" in last
        assert shlex.split(last.replace("\\n", ""))[2] == "msg=" + line
    with open(node.config) as file:
        assert file.read() == (spec if isinstance(spec, str) else json.dumps(spec))
    assert sorted(os.listdir(node.bundle)) == ["config.json", "rootfs"]
    assert [call for call in node.runtime.calls() if "create" in call[0]] == []


@pytest.mark.parametrize("log", ["/nowhere/log", "/", ""])
def test_a_log_that_cannot_be_written_hides_no_error(node: Node, log: str) -> None:
    status, line = node.create(by_env("VCUDA_CORE=0"), "--log", log)
    assert (status, line) == (1, f"vcuda-container-runtime: env: core cannot be '0'; {NUMBER}\n")


def test_a_runtime_that_cannot_be_run_is_one_line(node: Node) -> None:
    text = write(node.folder + "/text", "no program", 0o755)
    node.configure(runtime=text)
    assert node.create(asking()) == (
        1,
        f"vcuda-container-runtime: {text}: cannot be run: Exec format error; "
        "install it, or set runtime in config.toml\n",
    )


def test_a_runtime_that_refuses_loses_its_share_to_the_next_that_needs_it(node: Node) -> None:
    """The runtime never knew `box`, so the sweep takes what it was given."""
    assert node.create(asking({"vcuda.io/core": "200"})) == (0, "")
    assert node.create(asking(), id="next") == (0, "")
    assert shares_of(node.ledger) == {"next": HALF_SHARE}
