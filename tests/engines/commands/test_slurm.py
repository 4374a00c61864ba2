"""Jobs of a real Slurm share a GPU as docs/tutorial-slurm.md says."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest

from release.docs.commands import REPOSITORY, blocks
from support.host import own_run
from support.host.private_host import PrivateHost
from support.host.slurm import GPU_BYTES, USERS, Slurm, missing
from support.needed import skip_or_fail
from support.product import Product
from support.waiting import until

PAGE = "docs/tutorial-slurm.md"
WORKLOAD = REPOSITORY + "/build/softgpu/vcuda-workload"


def files_of_the_page() -> dict[str, str]:
    """The text of each file that the page shows, by its path."""
    with open(f"{REPOSITORY}/{PAGE}") as file:
        texts = ["\n".join(block.lines) + "\n" for block in blocks(PAGE, file.read())]
    named = [(re.search(r"(?m)^# (\S+)$", text), text) for text in texts]
    return {match[1]: text for match, text in named if match}


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    reason = missing()
    if reason is not None:
        skip_or_fail(reason)
    own_run.sweep()
    host = PrivateHost()
    folder = host.path("product")
    os.mkdir(folder)
    try:
        yield Slurm(host, Product(folder, gpus=1), files_of_the_page())
    finally:
        host.close()


@pytest.fixture(scope="module")
def bobs_job(slurm: Slurm) -> Iterator[str]:
    """The id of a job with two shards in which a command runs."""
    script = "#!/bin/sh\nexec sudo gpu-run sleep 600\n"
    slurm.write("bob", "sleep.sh", script)
    job = slurm.run("bob", "sbatch", "--parsable", "--gres=shard:2", "sleep.sh").stdout.strip()
    until(lambda: f"slurm-{job}" in slurm.running(), "the job's container")
    yield job


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
        output = f"slurm-{batch}.out"
        until(lambda: "allocated" in slurm.read("alice", output), "the batch job's output")
        until(lambda: len(slurm.running()) == 2, "both containers")
        assert sorted(slurm.running().values()) == [(30, 30), (50, 50)]
        assert slurm.running()[f"slurm-{batch}"] == (30, 30)
        assert "0 / 4915 MiB" in slurm.read("alice", output)
        assert percent_taken(slurm.read("alice", output)) == 30
        slurm.run("alice", "scancel", batch)
        until(lambda: f"slurm-{batch}" not in slurm.running(), "the end of the container")
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


def test_the_jobs_memory_limit_holds_for_its_container(slurm: Slurm) -> None:
    takes = ("python3", "-c", "print(len(bytearray(300 << 20)))")
    share = ("srun", "--gres=shard:3")
    done = slurm.run("alice", *share, "--mem=600M", *GPU_RUN, *takes)
    assert done.stdout.strip() == str(300 << 20), done
    done = slurm.run("alice", *share, "--mem=100M", *GPU_RUN, *takes)
    assert (done.rc != 0, done.stdout.strip()) == (True, "")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("srun", "--immediate=1", "--gres=shard:9", "true"), "Unable to allocate resources"),
        (("srun", "--gres=shard:11", "true"), "Requested node configuration is not available"),
        (("srun", *GPU_RUN, "true"), r"job \d+ has no shards"),
        (("srun", "--gres=shard:1,shard:2", *GPU_RUN, "true"), "has no shards"),
        ((*GPU_RUN, "true"), "not in a Slurm job"),
        (("srun", "env", "SLURM_JOB_ID=BOB", *GPU_RUN, "true"), "not in job BOB"),
        (("env", "SLURM_JOB_ID=1,BOB", *GPU_RUN, "true"), "not in a Slurm job"),
        (("srun", "--gres=shard:1", "sudo", "--non-interactive", "id"), "a password is required"),
    ],
)
def test_asking_for_more_than_a_share_is_refused(
    slurm: Slurm, bobs_job: str, words: tuple[str, ...], answer: str
) -> None:
    done = slurm.run("alice", *(word.replace("BOB", bobs_job) for word in words))
    assert done.rc != 0
    assert re.search(answer.replace("BOB", bobs_job), done.stderr), done


def test_command_outside_of_the_users_own_job_gets_no_share(slurm: Slurm, bobs_job: str) -> None:
    """Slurm would not end it with the job."""
    done = slurm.run("bob", "env", f"SLURM_JOB_ID={bobs_job}", *GPU_RUN, "true")
    assert (done.rc, done.stderr) == (1, f"gpu-run: not in job {bobs_job}\n")


def test_second_command_of_a_job_is_refused_while_one_runs(slurm: Slurm, bobs_job: str) -> None:
    done = slurm.run("bob", "srun", f"--jobid={bobs_job}", "--overlap", *GPU_RUN, "true")
    assert done.rc != 0
    assert "already exists" in done.stderr
    assert slurm.running() == {f"slurm-{bobs_job}": (20, 20)}
