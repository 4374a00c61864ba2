"""`vcuda run`: a container with a share and no daemon, on cgroup v1 and v2."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shlex
import shutil
import struct
import subprocess
import tempfile
import termios
from collections.abc import Callable
from typing import Any

import pytest

from support.bundle import rootfs, spec
from support.engines.base import Files
from support.engines.vcuda_command import PREFIX, SLEEPS, Command
from support.files import ROOT
from support.waiting import until
from vcuda_hook.text import table

GIB = 1 << 30


def test_a_command_gets_its_slice_and_nothing_else(vcuda: Command, files: Files) -> None:
    before = sorted(os.listdir(files.rootfs + "/usr")), os.listdir(files.rootfs + "/dev")
    script = (
        "vcuda-workload info; vcuda-workload alloc --chunk 1GiB; "
        "mknod /dev/other c 195 1; open-node /dev/nvidia0 /dev/other; exit 7"
    )
    share = ["--core", "30", "--memory", "4GiB", "--gpu", "0"]
    result = vcuda.run(*share, "--rootfs", files.rootfs, "--", "sh", "-c", script)
    assert result.rc == 7, result.stderr
    info, alloc, granted, other = result.stdout.splitlines()
    assert [d["total_bytes"] for d in json.loads(info)["devices"]] == [4 * GIB]
    assert json.loads(alloc) == {
        "allocated_bytes": 4 * GIB,
        "exact_bytes": 4 * GIB,
        "error": "CUDA_ERROR_OUT_OF_MEMORY",
    }
    assert "EPERM" not in granted
    assert other == "/dev/other: EPERM"
    after = sorted(os.listdir(files.rootfs + "/usr")), os.listdir(files.rootfs + "/dev")
    assert after == before, "the user's folder has changed"


def test_without_a_rootfs_the_hosts_programs_run_and_their_writes_vanish(vcuda: Command) -> None:
    mark = f"/vcuda-written-{os.getpid()}"
    result = vcuda.run("--core", "10", "--", "sh", "-c", f"echo mark >{mark}; cat {mark}; id -u")
    assert (result.rc, result.stdout) == (0, "mark\n0\n"), result.stderr
    assert not os.path.exists(mark)


def test_volumes_and_variables_reach_the_container(vcuda: Command, scratch: str) -> None:
    with open(scratch + "/in", "w") as file:
        file.write("from the host\n")
    script = 'cat /ro/in; echo "$WORD" >/rw/out; echo x >/ro/out'
    volumes = ["--volume", f"{scratch}:/ro:ro", "--volume", f"{scratch}:/rw"]
    words = ["--env", "WORD=a b", "--workdir", "/rw", "--", "sh", "-c", script + "; pwd"]
    result = vcuda.run("--core", "10", *volumes, *words)
    assert result.stdout == "from the host\n/rw\n"
    with open(scratch + "/out") as file:
        assert file.read() == "a b\n"


def test_signal_reaches_the_container_and_its_exit_code_is_returned(vcuda: Command) -> None:
    process, pid = vcuda.start("signalled", "--core", "10", *SLEEPS)
    vcuda.send("TERM", pid)
    assert process.wait(30) == 5


def test_ps_and_inspect_show_it_and_release_does_not_remove_it(vcuda: Command) -> None:
    process, pid = vcuda.start("shown", "--core", "30", "--memory", "2GiB", *SLEEPS)
    (entry,) = vcuda.json("ps")
    assert (entry["core_percent"], entry["memory_bytes"]) == (30, 2 * GIB)
    assert entry["memory_used_bytes"] == 0
    assert entry["gpu_index"] in (0, 1)
    assert vcuda.json("inspect", PREFIX + "sho")["container_id"] == PREFIX + "shown"
    free = {gpu["uuid"]: gpu["free_core_percent"] for gpu in vcuda.json("gpus")}
    assert free.pop(entry["gpu_uuid"]) == 70
    assert set(free.values()) == {100}
    refused = vcuda("release", PREFIX + "shown")
    assert refused.rc == 1
    assert "its container lives" in refused.stderr
    assert vcuda.json("release", "--all-dead") == []
    vcuda.send("TERM", pid)
    assert process.wait(30) == 5
    assert vcuda.json("ps") == []


def test_what_does_not_fit_is_refused_with_what_would(vcuda: Command) -> None:
    shown = table.short(vcuda.json("gpus")[0]["uuid"])  # as `vcuda gpus` shows it
    process, pid = vcuda.start("first", "--core", "70", "--gpu", shown, *SLEEPS)
    refused = vcuda.run("--core", "40", "--gpu", "0", "--", "true")
    assert (refused.rc, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith("vcuda: placement: largest free share is 30 % and ")
    assert "; 40 % " in line
    assert line.endswith(" asked; ask for less, or free a share")
    assert [entry["id"] for entry in vcuda.json("ps")] == [PREFIX + "first"]
    vcuda.send("TERM", pid)
    assert process.wait(30) == 5


def test_a_second_container_of_the_same_name_does_the_first_no_harm(vcuda: Command) -> None:
    process, pid = vcuda.start("twin", "--core", "30", *SLEEPS)
    for core in ("30", "40"):
        second = vcuda.run("--core", core, "--", "true", name="twin")
        assert second.rc == 1
        assert second.stderr
    assert [entry["status"] for entry in vcuda.json("ps")] == ["running"]
    vcuda.send("TERM", pid)
    assert process.wait(30) == 5


def test_a_bundle_is_run_and_not_touched(vcuda: Command, files: Files, scratch: str) -> None:
    rootfs.copy(files.rootfs, scratch + "/rootfs")
    config = spec.plain(
        ["sh", "-c", "vcuda-workload info; exit 3"],
        cgroups_path=f"{vcuda.host.cgroup_parent}/bundled",
        annotations={"vcuda.io/core": "99", "vcuda.io/gpu": "1"},
    )
    with open(scratch + "/config.json", "w") as file:
        json.dump(config, file)
    with open(scratch + "/config.json", "rb") as file:
        before = file.read(), sorted(os.listdir(scratch + "/rootfs/dev"))
    result = vcuda.run("--core", "20", "--memory", "1GiB", "--bundle", scratch)
    assert result.rc == 3, result.stderr
    assert json.loads(result.stdout)["devices"][0]["total_bytes"] == GIB
    with open(scratch + "/config.json", "rb") as file:
        assert (file.read(), sorted(os.listdir(scratch + "/rootfs/dev"))) == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda config: config["linux"]["namespaces"].append({"type": "bogus"}),
        lambda config: config["process"].update(args=["/no/such/program"]),
    ],
    ids=["no such namespace", "no such program"],
)
def test_what_the_runtime_refuses_holds_nothing_afterwards(
    vcuda: Command, files: Files, scratch: str, spoil: Callable[[Any], None]
) -> None:
    config = spec.plain(["true"], cgroups_path=f"{vcuda.host.cgroup_parent}/spoilt")
    config["root"]["path"] = files.rootfs
    spoil(config)
    with open(scratch + "/config.json", "w") as file:
        json.dump(config, file)
    result = vcuda.run("--core", "20", "--bundle", scratch)
    assert result.rc != 0
    assert result.stderr
    until(lambda: vcuda.leftovers() == [], "the share to be free again")


@pytest.mark.parametrize(
    ("program", "exit_code", "error"),
    [
        ("nosuch", 127, "nosuch: no such program in the container; "),
        ("/no/such", 127, "/no/such: no such program in the container; "),
        ("/etc/passwd", 126, "/etc/passwd: cannot be executed; "),
        ("/etc", 126, "/etc: cannot be executed; "),
    ],
)
def test_a_program_that_cannot_be_started_ends_as_in_a_shell(
    vcuda: Command, program: str, exit_code: int, error: str
) -> None:
    result = vcuda.run("--core", "20", "--", program)
    assert (result.rc, result.stdout) == (exit_code, "")
    assert result.stderr.startswith(f"vcuda: {error}")
    assert vcuda.leftovers() == []


def test_a_program_that_comes_with_the_share_is_started(vcuda: Command) -> None:
    assert vcuda.host.run(["sh", "-c", "command -v nvidia-smi"]).rc != 0
    result = vcuda.run("--core", "20", "--memory", "1GiB", "--", "nvidia-smi")
    assert result.rc == 0, result.stderr
    assert "0 / 1024 MiB" in result.stdout


def test_a_program_of_a_volume_is_started(vcuda: Command, files: Files, scratch: str) -> None:
    shutil.copy(files.rootfs + "/bin/busybox", scratch + "/true")
    result = vcuda.run("--core", "20", "--volume", scratch + ":/mine", "--", "/mine/true")
    assert (result.rc, result.stderr) == (0, "")


def test_tables_fit_a_terminal_of_80_columns(vcuda: Command) -> None:
    words = ["--policy", "elastic", "--priority", "5", "--core-limit", "80"]
    words += ["--latency", "low", *SLEEPS]
    process, pid = vcuda.start("n" * 50, "--core", "30", "--memory", "1000MiB", *words)
    for verb in ("ps", "gpus"):
        shown = on_a_terminal(vcuda, vcuda.words([verb]), columns=80)
        assert shown.splitlines()[0].startswith(("CONTAINER", "INDEX"))
        assert max(map(len, shown.splitlines())) <= 80
    wide = vcuda("ps", "--wide").stdout
    assert PREFIX + "n" * 50 in wide
    assert "elastic to 80 %, priority 5, low latency" in wide
    vcuda.send("TERM", pid)
    assert process.wait(30) == 5


def on_a_terminal(vcuda: Command, words: list[str], columns: int) -> str:
    """What the command writes to a terminal of this width, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = vcuda.host.environment(vcuda.engine.environment())
    process = subprocess.Popen(
        vcuda.host.inside(words), stdout=theirs, env={**environment, "NO_COLOR": "1"}
    )
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while more := os.read(ours, 65536):
            text += more
    os.close(ours)
    assert process.wait(30) == 0
    return text.decode()


def test_a_demo_that_is_stopped_leaves_nothing(vcuda: Command, scratch: str) -> None:
    folder = tempfile.mkdtemp(dir=scratch)
    built = ROOT + "/build/softgpu"
    line = shlex.join(
        [
            vcuda.program,
            "demo",
            "--runtime",
            vcuda.engine.plain_runtime(),
            "--softgpu-dir",
            os.path.abspath(built),
            "--json-out",
            f"{folder}/demo.json",
        ]
    )
    process = subprocess.Popen(
        vcuda.host.inside(["sh", "-c", f"echo $$; exec {line}"]),
        env={**vcuda.host.environment(vcuda.engine.environment()), "TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    for said in process.stdout:
        if "both busy" in said:
            vcuda.send("TERM", pid)
    assert process.wait(60) == 130
    assert os.listdir(folder) == ["demo.json"]
    with open(f"{folder}/demo.json") as file:
        assert json.load(file)["ok"] is False
