"""A container gets exactly its requested share on every engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from support.engines.base import Engine, Result
from support.engines.cri import Cri
from support.engines.docker import Docker
from support.files import ROOT
from support.product import MIB, Product, RunOptions, asking
from support.wrapper.runtime_recorder import Recorder
from vcuda_oci.model.names import GUEST_LIMITS
from vcuda_oci.pages import layout, page_reader

TURN_KEEPER = os.path.join(ROOT, "build", "lib", "vcuda-turn-keeper")
LIMIT = 1024 * MIB
SECONDS = 4  # a host that is late by 60 ms then costs half of what is allowed


@pytest.fixture
def sharing(engine: Engine, product: Product) -> Iterator[Engine]:
    """The engine with the product in front of its low-level runtime, and an empty ledger."""
    with product.on(engine):
        yield engine
    # A pod retains its share for a restart until its sandbox is removed; then a sweep releases it.
    if not isinstance(engine, Cri):
        assert product.allocations(engine) == []


# In real time, so `timed`: one engine of each kind. Every engine's container
# has the same libraries, limits page and usage page, which the other tests here read.
@pytest.fixture(params=["docker", "crun-v2", "containerd-cri-v2", "podman"])
def measured(
    request: pytest.FixtureRequest, start_engine: Callable[[str], Engine], product: Product
) -> Iterator[Engine]:
    engine = start_engine(request.param)
    with product.on(engine):
        yield engine


def test_the_granted_gpu_opens_and_another_does_not(sharing: Engine, container: str) -> None:
    script = """
      granted=$(ls /dev | grep -x 'nvidia[0-9]*')
      mknod /dev/other c 195 $((1 - ${granted#nvidia}))
      open-node /dev/$granted /dev/nvidiactl /dev/other
    """
    result = sharing.run(container, ["sh", "-c", script], **asking(sharing, core=30))
    assert result.rc == 0, result.stderr
    answers = re.sub(r"nvidia\d", "nvidiaN", result.stdout).splitlines()
    # ENXIO: the device rule lets it through, and no driver is behind the number.
    assert answers[0] in ("/dev/nvidiaN: ENXIO", "/dev/nvidiaN: ok")
    assert answers[1] in ("/dev/nvidiactl: ENXIO", "/dev/nvidiactl: ok")
    assert answers[2:] == ["/dev/other: EPERM"]


def test_a_program_meets_its_memory_limit_to_the_byte(sharing: Engine, container: str) -> None:
    # One allocation of all, then ever smaller ones, down to a single byte.
    fill = ["vcuda-workload", "alloc", "--chunk", str(LIMIT)]
    result = sharing.run(container, fill, **asking(sharing, core=30, memory_bytes=LIMIT))
    assert result.rc == 0, result.stderr
    assert json.loads(result.stdout) == {
        "allocated_bytes": LIMIT,
        "exact_bytes": LIMIT,
        "error": "CUDA_ERROR_OUT_OF_MEMORY",
    }


def test_a_program_sees_one_gpu_of_the_size_of_its_slice(sharing: Engine, container: str) -> None:
    asked = asking(sharing, core=30, memory_bytes=LIMIT)
    result = sharing.run(container, ["vcuda-workload", "info"], **asked)
    assert result.rc == 0, result.stderr
    (device,) = json.loads(result.stdout)["devices"]
    assert (device["total_bytes"], device["free_bytes"]) == (LIMIT, LIMIT)


def test_requested_policy_is_in_the_containers_limits_page(
    sharing: Engine, product: Product, container: str
) -> None:
    asked = asking(sharing, core=30, policy="elastic", core_limit="60", priority="5", latency="low")
    result = sharing.run(container, ["od", "-An", "-v", "-tx1", GUEST_LIMITS], **asked)
    assert result.rc == 0, result.stderr
    page = page_reader.read_limits(bytes.fromhex(result.stdout))
    (gpu,) = page.gpus
    assert gpu.latency == layout.LATENCY_LOW
    # Until an arbiter grants, the rate is the reserved one.
    assert (gpu.policy, gpu.core_percent, gpu.core_ceiling_percent, gpu.weight, gpu.rate_ppm) == (
        layout.POLICY_ELASTIC,
        30,
        60,
        30,
        300_000,
    )
    assert page.rate_until_ns == 0


def test_parameter_of_another_policy_fails_the_container_in_one_line(
    sharing: Engine, container: str
) -> None:
    result = sharing.run(container, ["echo", "hello"], **asking(sharing, core=30, weight="5"))
    sharing.delete(container)
    assert (result.rc != 0, result.stdout) == (True, "")
    assert re.search(
        r"vcuda-container-runtime: (env|annotations): weight means nothing with policy fixed; "
        r"leave it out, or use weighted",
        result.stderr,
    )


def test_nvidia_smi_inside_shows_the_slice(sharing: Engine, container: str) -> None:
    script = """
      vcuda-workload hold --bytes 256MiB --seconds 100 >/tmp/held &
      until [ -s /tmp/held ]; do sleep 0.01; done
      nvidia-smi
      for genuine in /usr/bin/nvidia-smi-*; do [ ! -e $genuine ] || $genuine || exit; done
    """
    asked = asking(sharing, core=30, memory_bytes=LIMIT)
    result = sharing.run(container, ["sh", "-c", script], **asked)
    assert result.rc == 0, result.stderr
    # One GPU: the memory in use, and the limit in place of its size.
    # Also by NVIDIA's own programs, where packaging/genuine-driver could fetch them.
    shown = result.stdout.count("NVIDIA-SMI")
    memory = re.findall(r"(\d+) ?(?:MiB)? */ *(\d+) ?MiB", result.stdout)
    assert memory == [("256", str(LIMIT // MIB))] * shown
    assert result.stdout.count("vcuda-workload") == shown


@pytest.mark.parametrize(("setting", "word"), [("no", 0), ("yes", 1)])
def test_limits_page_says_whether_copies_are_metered(
    start_engine: Callable[[str], Engine],
    product: Product,
    container: str,
    setting: str,
    word: int,
) -> None:
    """A setting of the host's: no engine passes it on."""
    engine = start_engine("runc-v2")
    (at,) = [at for name, at, _ in layout.offsets() if name == "limits.meter_copies"]
    look = ["od", "-An", "-t", "u4", "-j", str(at), "-N", "4", GUEST_LIMITS]
    with product.on(engine, meter_copies=setting):
        result = engine.run(container, look, **asking(engine, core=30))
    assert (result.rc, result.stdout.split()) == (0, [str(word)])


def test_container_without_a_request_has_an_unchanged_config_json(
    engine: Engine, product: Product, container: str, record: Callable[[str], Recorder]
) -> None:
    behind = record(engine.plain_runtime())
    product.configure(engine, runtime=behind.path)
    before = record(product.runtime)
    with engine.using(before.path):
        assert engine.run(container, ["echo", "hello"]) == Result(0, "hello\n", "")
    assert before.config_bytes() == behind.config_bytes() != []
    calls = before.calls()
    deleted = [id for *_, verb, id in calls if verb == "delete"]
    # A shim's second delete of such a container ends at the launcher.
    again = [["delete", "--force", id] for id in deleted]
    assert behind.calls() == [call for call in calls if call[-3:] not in again]


def test_the_allocation_lives_as_long_as_the_container(
    sharing: Engine, product: Product, container: str
) -> None:
    asked = asking(sharing, core=30, memory_bytes=LIMIT)
    started = sharing.start(container, ["sleep", "100"], **asked)
    try:
        assert started.rc == 0, started.stderr
        (record,) = product.allocations(sharing)
        (share,) = record["shares"]
        assert (share["core_percent"], share["memory_bytes"]) == (30, LIMIT)
        # Devices and mounts hold for processes that enter later, too.
        entered = sharing.exec(container, ["vcuda-workload", "alloc", "--chunk", str(LIMIT)])
        assert json.loads(entered.stdout)["exact_bytes"] == LIMIT
        sharing.kill(container)
        assert sharing.wait(container) == 137
    finally:
        sharing.delete(container)
    # All of both GPUs: nothing of the dead container's share is kept from the next one.
    again = sharing.run(container + "-next", ["true"], **asking(sharing, core=200))
    assert again == Result(0, "", "")


def test_what_does_not_fit_is_refused_in_one_line(sharing: Engine, container: str) -> None:
    asked = asking(sharing, core=30, memory_bytes=1 << 45)
    result = sharing.run(container, ["echo", "hello"], **asked)
    sharing.delete(container)
    assert result.rc != 0
    assert result.stdout == ""
    assert re.search(r"vcuda-container-runtime: placement: .*; ask for less", result.stderr)


def test_a_slip_in_a_request_is_refused_with_the_nearest(sharing: Engine, container: str) -> None:
    for words, said in (
        ({"cores": "30"}, "unknown request key"),
        ({"core": "30", "memory": "4096"}, "is 4096 bytes; did you mean 4096MiB?"),
    ):
        asked: RunOptions = {"annotations": {f"vcuda.io/{key}": words[key] for key in words}}
        if isinstance(sharing, Docker):
            asked = {"env": {f"VCUDA_{key.upper()}": words[key] for key in words}}
        result = sharing.run(container, ["echo", "hello"], **asked)
        sharing.delete(container)
        assert (result.rc != 0, result.stdout) == (True, "")
        assert said in result.stderr


@pytest.mark.timed
def test_two_busy_containers_get_the_shares_they_asked_for(
    measured: Engine, product: Product, container: str, scratch: str
) -> None:
    names = {30: container + "-a", 70: container + "-b"}
    busy = ["vcuda-workload", "busy", "--kernel-us=1000", "--async=4", "--wait-file=/start/now"]
    keeper = None
    try:
        for core, name in names.items():
            asked = asking(measured, core=core)
            started = measured.start(
                name, [*busy, f"--seconds={SECONDS}"], mounts=[(scratch, "/start")], **asked
            )
            assert started.rc == 0, started.stderr
        records = product.allocations(measured)
        keeper = subprocess.Popen([TURN_KEEPER, product.state_dir(measured), str(os.getpid())])
        assert len({share["uuid"] for record in records for share in record["shares"]}) == 1
        with open(os.path.join(scratch, "now"), "w"):
            pass
        for name in names.values():
            assert measured.wait(name) == 0, measured.logs(name)
        shares = {core: json.loads(measured.logs(name))["share"] for core, name in names.items()}
    finally:
        for name in names.values():
            measured.delete(name)
        if keeper:
            keeper.terminate()
            keeper.wait(10)
    assert shares == {30: pytest.approx(0.30, abs=0.03), 70: pytest.approx(0.70, abs=0.03)}
