"""Jobs of a real Slurm share a GPU as docs/tutorial-slurm.md says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from release.docs.commands import REPOSITORY, blocks
from support import own_run
from support.needed import skip_or_fail
from support.private_host import PATH, PrivateHost, Result, wait_until
from support.product import Product

PAGE = "docs/tutorial-slurm.md"
USERS = {"alice": 1500, "bob": 1501}
WORKLOAD = REPOSITORY + "/build/softgpu/vcuda-workload"
GPU_BYTES = 16 << 30
# What the page leaves to the cluster; the timers are short. One node is named as this host.
CLUSTER = """
ClusterName=test
SlurmctldHost=localhost
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectTypeParameters=CR_Core
KillWait=1
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES
"""


def files_of_the_page() -> dict[str, str]:
    """The text of each file that the page shows, by its path."""
    with open(f"{REPOSITORY}/{PAGE}") as file:
        texts = ["\n".join(block.lines) + "\n" for block in blocks(PAGE, file.read())]
    named = [(re.search(r"(?m)^# (\S+)$", text), text) for text in texts]
    return {match[1]: text for match, text in named if match}


class Slurm:
    """A cluster of one node, in namespaces of its own. The end of the host ends its daemons."""

    def __init__(self, host: PrivateHost, product: Product) -> None:
        self.host, self.node = host, os.uname().nodename
        self._write_files(product)
        for user, uid in USERS.items():
            self.host.check(["useradd", "--uid", str(uid), "--create-home", user])
        self._start()

    def home(self, user: str) -> str:
        return self.host.path("home", user)

    def _write_files(self, product: Product) -> None:
        # Nothing of the host below these two is covered.
        for folder in ("/usr/local/sbin", "/home"):
            over = self.host.path(os.path.basename(folder))
            os.makedirs(over, exist_ok=True)
            self.host.check(["mount", "--bind", over, folder])
        os.symlink(product.prefix + "/bin/vcuda", self.host.path("sbin/vcuda"))
        texts = files_of_the_page()
        nodes = texts["/etc/slurm/slurm.conf"].replace(
            "NodeName=node1", f"NodeName={self.node} NodeAddr=127.0.0.1 CPUs=8"
        )
        devices = texts["/etc/slurm/gres.conf"].replace("/dev/nvidia0", "/dev/null")
        for path, text, mode in (
            ("/etc/slurm/slurm.conf", CLUSTER + nodes, 0o644),
            ("/etc/slurm/gres.conf", devices, 0o644),
            ("/usr/local/sbin/gpu-run", texts["/usr/local/sbin/gpu-run"], 0o755),
            ("/etc/sudoers.d/gpu-run", texts["/etc/sudoers.d/gpu-run"], 0o440),
            ("/etc/hosts", f"127.0.0.1 localhost {self.node}\n", 0o644),
            (product.config, f'driver-root = "{product.driver_root}"\n', 0o644),
        ):
            self._append(path, text, fresh=True)
            os.chmod(self._inside(path), mode)

    def _start(self) -> None:
        # Slurm resolves no name where the only address is the loopback's.
        self.host.check(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"])
        folders = ["/run/munge", "/var/log/munge", "/var/lib/munge"]
        self.host.check(["install", "-d", "-o", "munge", *folders])
        self.host.check(["install", "-d", "/var/spool/slurmd", "/var/spool/slurmctld"])
        as_munge = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
        self.host.daemon([*as_munge, "munged", "--foreground"], "munge.log")
        socket = self._inside("/run/munge/munge.socket.2")
        wait_until(lambda: os.path.exists(socket), "munged")
        for name in ("slurmctld", "slurmd"):
            self.host.daemon([name, "-D"], name + ".log")
        state = ["sinfo", "--noheader", "--format=%t"]
        try:
            wait_until(lambda: self.host.run(state).stdout.strip() == "idle", "the node", 10)
        except TimeoutError:
            logs = [self.host.read(f"{name}.log")[-2000:] for name in ("slurmctld", "slurmd")]
            raise RuntimeError("\n".join(logs)) from None

    def _inside(self, path: str) -> str:
        return f"/proc/{self.host.pid}/root{path}"

    def _append(self, path: str, text: str, fresh: bool = False) -> None:
        os.makedirs(os.path.dirname(self._inside(path)), exist_ok=True)
        with open(self._inside(path), "w" if fresh else "a") as file:
            file.write(text)

    def words(self, user: str, *words: str) -> list[str]:
        rights = [f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups"]
        home = f"/home/{user}"
        return ["setpriv", *rights, "env", "-C", home, f"HOME={home}", "TMPDIR=/tmp", *words]

    def run(self, user: str, *words: str) -> Result:
        return self.host.run(self.words(user, *words))

    def start(self, user: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.host.inside(self.words(user, *words)),
            env=self.host.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def write(self, user: str, name: str, text: str) -> None:
        with open(f"{self.home(user)}/{name}", "w") as file:
            file.write(text)

    def read(self, user: str, name: str) -> str:
        path = f"{self.home(user)}/{name}"
        if not os.path.exists(path):
            return ""
        with open(path) as file:
            return file.read()

    def running(self) -> dict[str, tuple[int, int]]:
        """The running containers: percent of one GPU's time and of its memory, by name."""
        told = json.loads(self.host.check(["/usr/local/sbin/vcuda", "ps", "--json"]))
        return {
            each["name"]: (each["core_percent"], round(100 * each["memory_bytes"] / GPU_BYTES))
            for each in told
            if each["status"] == "running"
        }


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    absent = [p for p in ("slurmctld", "slurmd", "munged", "sudo", "runc") if not which(p)]
    if absent:
        skip_or_fail(f"{', '.join(absent)} not installed; run 'make prepare'")
    own_run.sweep()
    host = PrivateHost()
    folder = host.path("product")
    os.mkdir(folder)
    try:
        yield Slurm(host, Product(folder, gpus=1))
    finally:
        host.close()


@pytest.fixture(scope="module")
def bobs_job(slurm: Slurm) -> Iterator[str]:
    """The id of a job with two shards in which a command runs."""
    script = f"#!/bin/sh\nexec sudo gpu-run sleep 600\n"
    slurm.write("bob", "sleep.sh", script)
    job = slurm.run("bob", "sbatch", "--parsable", "--gres=shard:2", "sleep.sh").stdout.strip()
    wait_until(lambda: f"slurm-{job}" in slurm.running(), "the job's container")
    yield job
    slurm.run("bob", "scancel", job)
    wait_until(lambda: not slurm.running(), "the end of the job's container")


def which(program: str) -> str | None:
    return shutil.which(program, path=PATH)


# Prints what its share is, takes all of it, and stays until it is told to end.
TRAIN = f"""
import os, subprocess, time
print(subprocess.check_output(["{WORKLOAD}", "alloc", "--chunk", "1MiB"], text=True), flush=True)
while not os.path.exists("end"):
    time.sleep(0.05)
"""
GPU_RUN = ("sudo", "gpu-run")


def percent_taken(told: str) -> int:
    """Percent of the GPU's memory that a program could allocate."""
    line = next(line for line in told.splitlines() if line.startswith("{"))
    answer = json.loads(line)
    assert answer["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
    return round(100 * int(answer["allocated_bytes"]) / GPU_BYTES)


def test_two_users_jobs_share_one_gpu_and_scancel_returns_a_share(slurm: Slurm) -> None:
    for user in USERS:
        slurm.write(user, "train.py", TRAIN)
    slurm.write("alice", "train.sh", files_of_the_page()["train.sh"])
    batch = slurm.run("alice", "sbatch", "--parsable", "train.sh").stdout.strip()
    step = slurm.start("bob", "srun", "--gres=shard:5", *GPU_RUN, "python3", "-u", "train.py")
    try:
        wait_until(lambda: len(slurm.running()) == 2, "both containers")
        assert sorted(slurm.running().values()) == [(30, 30), (50, 50)]
        assert slurm.running()[f"slurm-{batch}"] == (30, 30)
        output = f"slurm-{batch}.out"
        wait_until(lambda: "allocated" in slurm.read("alice", output), "the batch job's output")
        assert "0 / 4915 MiB" in slurm.read("alice", output)
        assert percent_taken(slurm.read("alice", output)) == 30
        slurm.run("alice", "scancel", batch)
        wait_until(lambda: f"slurm-{batch}" not in slurm.running(), "the end of the container")
        assert list(slurm.running().values()) == [(50, 50)]
    finally:
        slurm.write("bob", "end", "")
        told, _ = step.communicate(timeout=30)
    assert step.returncode == 0
    assert percent_taken(told) == 50
    assert slurm.running() == {}


def test_gpu_run_gives_a_job_no_more_than_its_shards(slurm: Slurm) -> None:
    forged = ["VCUDA_CORE=90", "VCUDA_MEMORY=12GiB", "SLURM_CONF=/home/alice/slurm.conf"]
    share = ["srun", "--gres=shard:3", "--job-name= 1500 R gres:shard:9"]
    done = slurm.run("alice", *share, "env", *forged, *GPU_RUN, WORKLOAD, "alloc")
    assert percent_taken(done.stdout) == 30
    identity = "id; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status; pwd"
    done = slurm.run("alice", *share, *GPU_RUN, "sh", "-c", identity)
    assert done.stdout.split() == [
        *("uid=1500", "gid=1500", "groups=1500"),
        *("CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1", "/home/alice"),
    ]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("srun", "--gres=shard:11", "true"), "Requested node configuration is not available"),
        (("srun", *GPU_RUN, "true"), r"job \d+ of user alice has no shards"),
        (("srun", "--gres=shard:1,shard:2", *GPU_RUN, "true"), "has no shards"),
        (GPU_RUN + ("true",), "not in a Slurm job"),
        (("env", "SLURM_JOB_ID=BOB", *GPU_RUN, "true"), "of user alice has no shards"),
        (("env", "SLURM_JOB_ID=1,BOB", *GPU_RUN, "true"), "not in a Slurm job"),
        (("srun", "--gres=shard:1", "sudo", "--non-interactive", "id"), "a password is required"),
    ],
)
def test_asking_for_more_than_a_share_is_refused(
    slurm: Slurm, bobs_job: str, words: tuple[str, ...], answer: str
) -> None:
    done = slurm.run("alice", *(word.replace("BOB", bobs_job) for word in words))
    assert done.rc != 0
    assert re.search(answer, done.stderr), done


def test_second_command_of_a_job_is_refused_while_one_runs(slurm: Slurm, bobs_job: str) -> None:
    done = slurm.run("bob", "env", f"SLURM_JOB_ID={bobs_job}", *GPU_RUN, "true")
    assert done.rc != 0
    assert "already exists" in done.stderr
    assert slurm.running() == {f"slurm-{bobs_job}": (20, 20)}
