"""The wrapper refuses bad input with one line and leaves nothing."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from support.files import write
from support.ledger.samples import GIB, left_in, record
from support.wrapper.wrapper_node import Node, asking, by_env
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.pages import limits


def take_all(node: Node) -> None:
    whole = [GpuShare(f"GPU-{index}", 16 * GIB, 100) for index in (0, 1)]
    mine = [os.getpid(), _start_of(os.getpid())]
    _hold(node, record("other", shares=whole, claimant=mine))


def _start_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def _hold(node: Node, allocation: Any) -> None:
    with node.ledger:
        node.ledger.write(allocation, limits.page_of(allocation))


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
        "placement: no GPU '7' here; there is 0 (GPU-0), 1 (GPU-1); name one by index or UUID",
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
        "{config}: is not JSON: {json}; correct it, or let the engine write it",
    ),
    (
        "endless JSON",
        '{"vcuda": ' + "[" * 200_000,
        nothing,
        "{config}: is not JSON: nested too deeply; correct it, or let the engine write it",
    ),
    (
        "a spec of the wrong kinds",
        {**asking(), "mounts": {}},
        nothing,
        "config.json: 'mounts' is not a list; correct it as the OCI spec says",
    ),
    (
        "a record cut in half",
        asking(),
        cut_a_record,
        "{allocations}/other.json: is not a whole record ({cut}); "
        "run 'vcuda release other' if its container has ended",
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
        "/dev/null/x/allocations: cannot be written: Not a directory; free space there, "
        "or set state-dir",
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
            # Lazily: the claim socket's page keeper has a folder open there.
            subprocess.run(["umount", "--lazy", node.ledger.state_dir], check=True)
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
    # While its owner cannot be read, there is no id.
    allocation = "" if "is not JSON" in expected else "box"
    expected += f" (allocation {allocation})" if allocation else ""
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
        assert entry.pop("allocation", "") == allocation
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
    message = f"env: core cannot be '0'; {NUMBER} (allocation box)"
    assert (status, line) == (1, f"vcuda-container-runtime: {message}\n")


def test_a_runtime_that_cannot_be_run_is_one_line(node: Node) -> None:
    text = write(node.folder + "/text", "no program", 0o755)
    node.configure(runtime=text)
    assert node.create(asking()) == (
        1,
        f"vcuda-container-runtime: {text}: cannot be run: Exec format error; "
        "install it, or set runtime in config.toml (allocation box)\n",
    )
