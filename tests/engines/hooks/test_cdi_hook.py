"""What a CDI spec leaves to its hook: the image's own libcuda, its demands, and the GPUs in /proc.

No kernel here has /proc/driver/nvidia, so the folder above it is covered: the same file system, the
same hook, the same rules of the runtimes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator

import pytest

from engines.hooks.test_cdi import Host, options
from engines.images.test_images_with_a_driver import WAYS, Image
from support.bundle import image, rootfs
from support.engines.base import IMAGE, Engine, Files, Result
from support.engines.podman import Podman
from support.product import MIB, Product

LIMIT = 64 * MIB


def on(podman: Engine, product: Product) -> Iterator[Host]:
    assert isinstance(podman, Podman)
    with product.on(podman), podman.using(podman.plain_runtime()):
        yield Host(podman, product)
        podman.host.run(["rm", "-f", "/var/run/cdi/vcuda.json"])


@pytest.fixture
def host(start_engine: Callable[[str], Engine], product: Product) -> Iterator[Host]:
    yield from on(start_engine("podman"), product)


@pytest.fixture
def host_with_proc(
    start_engine: Callable[[str], Engine], product_of_proc_driver: Product
) -> Iterator[Host]:
    yield from on(start_engine("podman"), product_of_proc_driver)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_slice_holds_in_an_image_that_ships_a_driver(
    host: Host, files: Files, scratch: str, container: str, way: Callable[[Image], list[str]]
) -> None:
    rootfs.copy(files.rootfs, scratch + "/rootfs")
    start = way(scratch + "/rootfs")
    rootfs.as_tar(scratch + "/rootfs", scratch + "/layer.tar")
    podman, image = host.podman, f"localhost/{container}:1"
    podman.host.check(podman.command("import", scratch + "/layer.tar", image))
    made = host.vcuda("cdi", "generate", "--slice", "train=core:30,memory:64MiB")
    assert made.rc == 0, made.stderr
    script = f"vcuda-workload alloc --chunk {LIMIT} && nvidia-smi"
    words = ["run", "--rm", *options(podman, "train"), image, *start, "sh", "-c", script]
    result = podman.podman(*words)
    assert result.rc == 0, result.stderr
    allocated, _, table = result.stdout.partition("\n")
    assert json.loads(allocated) == {
        "allocated_bytes": LIMIT,
        "exact_bytes": LIMIT,
        "error": "CUDA_ERROR_OUT_OF_MEMORY",
    }
    assert re.findall(r"(\d+) ?(?:MiB)? */ *(\d+) ?MiB", table) == [("0", str(LIMIT // MIB))]


@pytest.mark.parametrize("device", ["1", "train"])
def test_what_the_image_demands_of_the_driver_is_judged(host: Host, device: str) -> None:
    assert host.vcuda("cdi", "generate", "--slice", "train=core:30").rc == 0
    podman = host.podman
    demand = "--env=NVIDIA_REQUIRE_CUDA=cuda>=99.0"
    refused = podman.podman("run", "--rm", demand, *options(podman, device), IMAGE, "true")
    assert refused.rc != 0
    assert re.search(r"vcuda-container-hook: .*NVIDIA_REQUIRE_CUDA.*cuda>=99\.0", refused.stderr)
    event = json.loads(host.vcuda("events", "--json").stdout)[-1]
    assert (event["kind"], event["from"]) == ("refused", "vcuda-container-hook")
    assert "NVIDIA_REQUIRE_CUDA" in event["text"]
    possible = demand.replace("99.0", "11.0")
    assert podman.podman("run", "--rm", possible, *options(podman, device), IMAGE, "true").rc == 0


@pytest.mark.parametrize(
    "devices",
    [("train", "1"), ("1", "train"), ("train", "other"), ("other", "train"), ("train", "0")],
)
def test_a_container_with_a_slice_and_more_is_refused(host: Host, devices: tuple[str, str]) -> None:
    result = run_with(host, devices, "echo", "started")
    assert (result.rc != 0, result.stdout) == (True, "")
    line = (
        "vcuda-container-hook: CDI devices: a slice and more of the GPUs; give it the slice alone"
    )
    assert line in result.stderr


def test_slice_listed_after_its_own_gpu_applies(host: Host) -> None:
    fill = ["vcuda-workload", "alloc", "--chunk", str(LIMIT)]
    assert json.loads(run_with(host, ("0", "train"), *fill).stdout)["exact_bytes"] == LIMIT


def run_with(host: Host, devices: tuple[str, str], *args: str) -> Result:
    """A container with two devices of a spec that has two slices, on a GPU each."""
    slices = ["--slice=train=core:30,memory:64MiB,gpu:0", "--slice=other=core:30,gpu:1"]
    made = host.vcuda("cdi", "generate", *slices)
    assert made.rc == 0, made.stderr
    words = [*options(host.podman, devices[0]), f"--device=vcuda.io/gpu={devices[1]}", IMAGE]
    return host.podman.podman("run", "--rm", *words, *args)


@pytest.fixture
def host_of_crun(
    start_engine: Callable[[str], Engine], product: Product, files: Files, scratch: str
) -> Iterator[Host]:
    """Podman on cgroup v2 with crun, which takes a preloaded library here: see CrunV2."""
    crun, preload = start_engine("crun-v2").plain_runtime(), files.no_setrlimit
    with open(scratch + "/crun", "w") as script:
        script.write(f'#!/bin/sh\nLD_PRELOAD={preload} exec {crun} "$@"\n')
    os.chmod(scratch + "/crun", 0o755)
    for host in on(start_engine("podman-v2"), product):
        with host.podman.using(scratch + "/crun"):
            yield host


USER_NAMESPACE = ["--uidmap=0:200000:65536", "--gidmap=0:200000:65536"]
FILL = ["vcuda-workload", "alloc", "--chunk", str(LIMIT)]


def test_a_slice_holds_under_crun_in_a_user_namespace(host_of_crun: Host) -> None:
    """There crun passes "/" as the bundle to its hooks."""
    assert host_of_crun.vcuda("cdi", "generate", "--slice=train=core:30,memory:64MiB").rc == 0
    podman = host_of_crun.podman
    result = podman.podman("run", "--rm", *USER_NAMESPACE, *options(podman, "train"), IMAGE, *FILL)
    assert (result.rc, result.stderr) == (0, "")
    assert json.loads(result.stdout)["exact_bytes"] == LIMIT


@pytest.mark.parametrize("more", [[], USER_NAMESPACE], ids=["plain", "user namespace"])
def test_the_reason_of_a_refusal_under_crun_reaches_podmans_user(
    host_of_crun: Host, more: list[str]
) -> None:
    assert host_of_crun.vcuda("cdi", "generate").rc == 0
    podman, demand = host_of_crun.podman, "--env=NVIDIA_REQUIRE_CUDA=cuda>=99.0"
    refused = podman.podman("run", "--rm", demand, *more, *options(podman, "0"), IMAGE, "true")
    assert refused.rc != 0
    assert "vcuda-container-hook: env NVIDIA_REQUIRE_CUDA: 'cuda>=99.0'" in refused.stderr


def test_image_cannot_redirect_hook_output_to_a_file(
    host_of_crun: Host, files: Files, scratch: str
) -> None:
    """Podman makes an image's annotations the container's, and crun opens the file as root."""
    target, name = scratch + "/profile.sh", "localhost/writes:1"
    annotations = {"run.oci.hooks.stderr": target}
    image.write(scratch + "/image.tar", files.layer, name, annotations=annotations)
    podman = host_of_crun.podman
    assert host_of_crun.vcuda("cdi", "generate").rc == 0
    assert podman.podman("load", "-i", scratch + "/image.tar").rc == 0
    demand = "--env=NVIDIA_REQUIRE_CUDA=cuda>=99.0"  # an image's ENV may say it
    refused = podman.podman("run", "--rm", demand, *options(podman, "0"), name, "true")
    podman.podman("rmi", name)
    assert "vcuda-container-hook: env NVIDIA_REQUIRE_CUDA: 'cuda>=99.0'" in refused.stderr
    # crun 1.8 itself makes the file, 1.21 does not.
    assert not os.path.exists(target) or os.path.getsize(target) == 0


def test_a_rule_for_every_nvidia_device_opens_no_other_gpu_beside_a_slice(host: Host) -> None:
    assert host.vcuda("cdi", "generate", "--slice=train=core:30,memory:64MiB,gpu:0").rc == 0
    script = "mknod /tmp/1 c 195 1; open-node /tmp/1 /dev/nvidia0; " + " ".join(FILL)
    words = ["--device-cgroup-rule=c 195:* rwm", *options(host.podman, "train"), IMAGE]
    result = host.podman.podman("run", "--rm", *words, "sh", "-c", script)
    other, own, filled = result.stdout.splitlines()
    assert other == "/tmp/1: EPERM"
    assert own in ("/dev/nvidia0: ENXIO", "/dev/nvidia0: ok")
    assert json.loads(filled)["exact_bytes"] == LIMIT


def test_a_slice_in_a_privileged_container_is_refused_with_the_reason(host: Host) -> None:
    assert host.vcuda("cdi", "generate", "--slice=train=core:30,memory:64MiB").rc == 0
    words = ["run", "--rm", "--privileged", *options(host.podman, "train"), IMAGE, "echo", "no"]
    result = host.podman.podman(*words)
    assert (result.rc != 0, result.stdout) == (True, "")
    line = "CDI devices: a privileged container sees every GPU, a slice cannot hold it; start it"
    assert line in result.stderr


def test_a_slice_and_a_share_of_its_own_are_refused_together(host: Host, container: str) -> None:
    assert host.vcuda("cdi", "generate", "--slice=train=core:30,memory:64MiB").rc == 0
    words = ["--annotation=vcuda.io/core=20", *options(host.podman, "train"), IMAGE, "echo", "no"]
    with host.podman.using(host.product.runtime):
        result = host.podman.podman("run", "--rm", *words)
    assert (result.rc != 0, result.stdout) == (True, "")
    assert "annotations: asks for a share and for a slice by CDI; ask for one" in result.stderr
    assert [held["id"] for held in host.product.allocations(host.podman)] == ["cdi@train"]


@pytest.mark.parametrize(
    ("devices", "minors"), [(["1"], ["1"]), (["train"], ["0"]), (["0", "1"], ["0", "1"])]
)
def test_a_container_sees_its_own_gpus_in_proc(
    host_with_proc: Host, devices: list[str], minors: list[str]
) -> None:
    host, podman = host_with_proc, host_with_proc.podman
    made = host.vcuda("cdi", "generate", "--slice", "train=core:30,gpu:0")
    assert made.rc == 0, made.stderr
    look = """
      cd /proc/driver && cat params
      echo x 2>/dev/null >params || echo read-only
      ls /dev | grep -o '^nvidia[0-9].*' | tr -d 'a-z'
    """
    more = [f"--device=vcuda.io/gpu={device}" for device in devices[1:]]
    words = [*options(podman, devices[0]), *more, IMAGE, "sh", "-c", look]
    result = podman.podman("run", "--rm", *words)
    assert result.rc == 0, result.stderr
    assert result.stdout.splitlines() == ["ModifyDeviceFiles: 0", "read-only", *minors]
    folders = os.listdir(os.path.join(host.product.state_dir(podman), "procfs"))
    assert "-".join(minors) in folders
