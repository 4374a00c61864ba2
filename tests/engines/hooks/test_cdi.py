"""Containers that get GPUs and named slices by CDI, with a plain low-level runtime."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.engines.base import IMAGE, Engine, Result
from support.engines.podman import Podman
from support.product import MIB, SOFTGPU, Product
from support.suspend.notebook import cells, used
from support.waiting import until

LIMIT = 1024 * MIB
KERNELS = ["vcuda-workload", "busy", "--kernel-us=1000", "--async=4", "--seconds=2"]


class Host:
    """Podman with the plain runtime, and the `vcuda` command on the same private host."""

    def __init__(self, podman: Podman, product: Product) -> None:
        self.podman, self.product = podman, product

    def vcuda(self, *words: str) -> Result:
        return self.podman.host.run([f"{self.product.prefix}/bin/vcuda", *words])

    def run(self, *args: str, device: str) -> Result:
        return self.podman.podman("run", "--rm", *options(self.podman, device), IMAGE, *args)


def options(podman: Podman, device: str) -> list[str]:
    return [
        "--network=none",
        "--log-driver=k8s-file",
        f"--cgroup-parent={podman.host.cgroup_parent}",
        "--cap-add=MKNOD",
        "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=1024:1024",
        "--pids-limit=-1",  # as engines/podman.py says
        f"--device=vcuda.io/gpu={device}",
    ]


@pytest.fixture(params=["podman", "podman-v2"])
def host(
    request: pytest.FixtureRequest, start_engine: Callable[[str], Engine], product: Product
) -> Iterator[Host]:
    podman = start_engine(request.param)
    assert isinstance(podman, Podman)
    with product.on(podman), podman.using(podman.plain_runtime()):
        yield Host(podman, product)
        podman.host.run(["sh", "-c", "rm -f /var/run/cdi/vcuda*.json"])


def test_a_whole_gpu_is_the_driver_itself_and_no_other_opens(host: Host) -> None:
    generated = host.vcuda("cdi", "generate")
    assert generated.rc == 0, generated.stderr
    script = """
      ls /dev | grep -x 'nvidia[0-9]*'
      ls /usr/local/vcuda 2>&1
      mknod /dev/other c 195 0
      open-node /dev/other
      vcuda-workload info
    """
    result = host.run("sh", "-c", script, device="1")
    assert result.rc == 0, result.stderr
    *lines, info = result.stdout.splitlines()
    assert lines == [
        "nvidia1",
        "ls: /usr/local/vcuda: No such file or directory",
        "/dev/other: EPERM",
    ]
    (device,) = json.loads(info)["devices"]
    (gpu,) = [gpu for gpu in gpus(host) if gpu["index"] == 1]
    assert (device["uuid"], device["total_bytes"]) == (gpu["uuid"], gpu["memory_bytes"])
    assert gpu["uuid"] in host.run("nvidia-smi", "-L", device=gpu["uuid"]).stdout
    every = json.loads(host.run("vcuda-workload", "info", device="all").stdout)["devices"]
    assert [device["uuid"] for device in every] == [gpu["uuid"] for gpu in gpus(host)]


def test_a_named_slice_holds_its_limits_in_every_container_together(host: Host) -> None:
    generated = host.vcuda("cdi", "generate", "--slice", "train=core:30,memory:1GiB")
    assert generated.rc == 0, generated.stderr
    fill = ["vcuda-workload", "alloc", "--chunk", str(LIMIT)]
    assert json.loads(host.run(*fill, device="train").stdout) == {
        "allocated_bytes": LIMIT,
        "exact_bytes": LIMIT,
        "error": "CUDA_ERROR_OUT_OF_MEMORY",
    }
    assert re.search(r"/ *1024 ?MiB", host.run("nvidia-smi", device="train").stdout)
    share = json.loads(host.run(*KERNELS, device="train").stdout)["share"]
    assert share == pytest.approx(0.30, abs=0.03)
    # Memory held by one container is not available to another of the same slice.
    podman = host.podman
    hold = ["vcuda-workload", "hold", "--bytes", str(LIMIT // 2), "--seconds", "100"]
    started = podman.podman(
        "run", "--detach", "--name=holder", *options(podman, "train"), IMAGE, *hold
    )
    assert started.rc == 0, started.stderr
    try:
        until(lambda: podman.logs("holder") != "", "the holder's memory")
        second = host.run(*fill, device="train")
        removed = host.vcuda("cdi", "remove", "train")
    finally:
        podman.delete("holder")
    assert json.loads(second.stdout)["exact_bytes"] == LIMIT // 2
    assert (removed.rc, removed.stderr) == (
        1,
        "vcuda: train: a process uses it; end it, or use --force: another may then get the same "
        "share\n",
    )


def test_containers_of_a_slice_leave_the_gpu_together_and_come_back(host: Host) -> None:
    podman, product = host.podman, host.product
    assert host.vcuda("cdi", "generate", "--slice", "train=core:30,memory:1GiB").rc == 0
    works = ["vcuda-workload", "notebook", "--bytes=64MiB", "--seconds=600", "--every-ms=50"]
    names = ["one", "two"]
    try:
        for name in names:
            run = ["run", "--detach", f"--name={name}", *options(podman, "train"), IMAGE, *works]
            assert podman.podman(*run).rc == 0
        until(lambda: all(map(podman.logs, names)), "both notebooks' cells")
        gone = host.vcuda("suspend", "cdi@train")
        assert (gone.rc, "128 MiB off" in gone.stdout) == (0, True), gone.stderr
        assert used(podman, product) == 0
        assert "suspended" in host.vcuda("ps").stdout
        refused = host.vcuda("cdi", "remove", "train", "--force")
        assert (refused.rc, "is suspended" in refused.stderr) == (1, True)
        assert host.vcuda("resume", "cdi@train").rc == 0
        seen = {name: len(cells(podman, name)) for name in names}
        until(lambda: all(len(cells(podman, n)) > seen[n] for n in names), "more cells")
        assert all(cell["intact"] for name in names for cell in cells(podman, name))
    finally:
        for name in names:
            podman.delete(name)


def test_a_spec_of_nvidias_kind_gives_the_same_slice(host: Host) -> None:
    assert host.vcuda("cdi", "generate", "--slice", "train=core:30,memory:1GiB").rc == 0
    generated = host.vcuda("cdi", "generate", "--kind", "nvidia.com/gpu")
    assert generated.rc == 0, generated.stderr
    *common, _ = options(host.podman, "train")
    fill = ["vcuda-workload", "alloc", "--chunk", str(LIMIT)]
    for kind in ("nvidia.com/gpu", "vcuda.io/gpu"):
        device = f"--device={kind}=train"
        ran = host.podman.podman("run", "--rm", *common, device, IMAGE, *fill)
        assert ran.rc == 0, ran.stderr
        assert json.loads(ran.stdout)["allocated_bytes"] == LIMIT


def test_a_slice_lives_until_it_is_removed_and_then_gives_nothing(host: Host) -> None:
    asked = ("cdi", "generate", "--slice", "train=core:70", "--slice", "infer=core:30,gpu:0")
    assert host.vcuda(*asked).rc == 0
    assert (
        host.vcuda("release", "--all-dead").stdout == "nothing to release: every container lives\n"
    )
    assert host.vcuda(*asked).stdout.startswith("unchanged /var/run/cdi/vcuda.json: 0, GPU-")
    full = host.vcuda("cdi", "generate", "--slice", "more=core:200")
    assert (full.rc, full.stderr.split(";")[0]) == (
        1,
        "vcuda: placement: 1 of 2 GPUs are wholly free",
    )
    podman = host.podman
    started = podman.podman(
        "run", "--detach", "--name=idle", *options(podman, "train"), IMAGE, "sleep", "100"
    )
    assert started.rc == 0, started.stderr
    try:
        assert host.vcuda("cdi", "remove", "train").stdout == "removed vcuda.io/gpu=train\n"
        late = podman.exec("idle", ["vcuda-workload", "info"])
    finally:
        podman.delete("idle")
    assert late.rc != 0
    assert "CUDA_ERROR_SYSTEM_NOT_READY" in late.stdout + late.stderr
    assert host.run("true", device="train").rc != 0
    assert host.run("true", device="infer") == Result(0, "", "")
    assert [record["id"] for record in host.product.allocations(podman)] == ["cdi@infer"]


def test_the_spec_follows_the_gpus_and_the_driver_until_it_is_ended(
    product: Product, scratch: str
) -> None:
    root, spec = f"{scratch}/driver", f"{scratch}/cdi/vcuda.json"
    with open(f"{scratch}/config.toml", "w") as file:
        file.write(f'driver-root = "{root}"\nstate-dir = "{scratch}/state"\n')
    subprocess.run([SOFTGPU, "create", root, "--gpus", "1"], check=True)
    words = ["--config", f"{scratch}/config.toml", "cdi", "generate", "--watch", "--interval=0.05"]
    watching = subprocess.Popen(
        [f"{product.prefix}/bin/vcuda", *words, f"--output={spec}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout
        lines = [watching.stdout.readline()]
        subprocess.run([SOFTGPU, "destroy", root], check=True)
        subprocess.run([SOFTGPU, "create", root, "--gpus", "2"], check=True)
        lines.append(watching.stdout.readline())
        names = [device["name"] for device in read(spec)["devices"]]
        subprocess.run([SOFTGPU, "destroy", root], check=True)
        newer = ["--gpus", "2", "--driver-version", "999.1"]
        subprocess.run([SOFTGPU, "create", root, *newer], check=True)
        until(lambda: "libcuda.so.999.1" in json.dumps(read(spec)), "the new driver")
        watching.terminate()
        assert watching.wait(30) == 0
    finally:
        watching.kill()
        watching.communicate()
    assert [len(line.split(", ")) for line in lines] == [3, 5]
    assert lines[0].startswith(f"wrote {spec}: 0, GPU-")
    assert [name for name in names if not name.startswith("GPU-")] == ["0", "1", "all"]
    assert os.listdir(os.path.dirname(spec)) == ["vcuda.json"]


def read(path: str) -> dict[str, Any]:
    with open(path) as file:
        tree: dict[str, Any] = json.load(file)
    return tree


def gpus(host: Host) -> list[dict[str, Any]]:
    listed: list[dict[str, object]] = json.loads(host.vcuda("gpus", "--json").stdout)
    return listed
