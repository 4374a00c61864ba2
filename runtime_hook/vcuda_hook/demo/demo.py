"""``vcuda demo``: run two containers on one GPU, measure their shares, and refuse a third."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from vcuda_oci.guest import page_file
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.pages import layout, page_reader
from vcuda_oci.start import apply_share
from vcuda_oci.system.settings_file import Config

from ..live.low_level import version
from ..run.command import find_runtime
from ..show import ps
from ..text import table
from . import demo_device
from .demo_container import START_SECONDS, Container, request
from .demo_device import Device

GIB = 1 << 30
TOLERANCE_POINTS = 3.0
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
SPARE_SECONDS = 30
LEAST_SECONDS = 4
# Turns begin after "go", and end with the workloads.
SETTLE_SECONDS = 0.5


def demo(arguments: argparse.Namespace, settings: Config) -> int:
    """Return 0 if all promises held, else 1. Leaves nothing behind, however it ends."""
    if arguments.seconds < LEAST_SECONDS:
        raise VcudaError(
            f"{arguments.seconds:g} seconds show nothing",
            "--seconds",
            f"use at least {LEAST_SECONDS}",
        )
    # Remove the old result first: a killed demo must not leave an earlier success.
    _write(arguments.json_out, {"ok": False, "failures": ["the demo did not end"]})
    try:
        result = _show_and_clean_up(arguments, settings)
    except VcudaError as error:
        _write(arguments.json_out, {"ok": False, "failures": [str(error)]})
        raise
    except KeyboardInterrupt:
        _print("stopped")
        return 130
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    _write(arguments.json_out, result)
    for failure in result["failures"]:
        _print(table.coloured(f"FAILED: {failure}", "red"))
    if result["ok"]:
        _print(table.coloured("ok: every promise held", "green"))
    return 0 if result["ok"] else 1


def _show_and_clean_up(arguments: argparse.Namespace, settings: Config) -> dict[str, Any]:
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)
    low_level = find_runtime(arguments.runtime or settings.runtime)
    what = "no vcuda-workload, the program that keeps the GPU busy"
    where = arguments.softgpu_dir or "vcuda demo"
    workload = demo_device.program(arguments.softgpu_dir, "vcuda-workload", what, where)
    demo_device.sweep()
    folder = demo_device.private_folder()
    containers: list[Container] = []
    try:
        device = demo_device.open_device(folder, settings, arguments.softgpu_dir)
        with _turn_keeper(device.settings.state_dir):
            return _show(device, low_level, workload, arguments.seconds, containers)
    finally:
        # Ignore further signals: an interrupted removal would leave parts behind.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for container in containers:
            container.kill()
        _wait_until_released(Ledger(folder + "/state"), os.path.basename(low_level))
        shutil.rmtree(folder)


@contextlib.contextmanager
def _turn_keeper(state_dir: str) -> Iterator[None]:
    """Give the demo's containers turns, as `vcuda serve` gives them to the host's."""
    Ledger(state_dir).make_folders()
    keeper = subprocess.Popen(
        [apply_share.TURN_KEEPER, state_dir, str(os.getpid())], stdin=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        keeper.terminate()
        keeper.wait()


def _show(
    device: Device, low_level: str, workload: str, seconds: float, containers: list[Container]
) -> dict[str, Any]:
    gpu = device.gpu()
    engine = version(low_level).replace(" version ", " ") or low_level
    _print(f"{device.kind} GPU: {gpu.model}, {table.size(gpu.memory_bytes)}, {gpu.uuid}")
    _print(f"engine: {engine}")
    vcuda = [os.path.realpath(sys.argv[0]), "--config", device.config_path]
    # On GPUs below 16 GiB: a quarter and a half of the memory.
    a = Container("A", 30, min(4 * GIB, gpu.memory_bytes // 4), 0, allocates_during=True)
    b = Container("B", 70, min(8 * GIB, gpu.memory_bytes // 2), GIB, allocates_during=False)
    shared = device.folder + "/shared"
    os.mkdir(shared)
    for container in (a, b):
        _print(
            f"container {container.name}: vcuda run --core {container.core} "
            f"--memory {table.size(container.memory).replace(' ', '')}"
        )
        containers.append(container)
        container.start(vcuda, shared, gpu.uuid, workload, seconds, low_level)
    for container in containers:
        container.wait_for("ready", START_SECONDS)
    time.sleep(0.5)  # the workloads load their kernels
    _print(f"both busy for {seconds:g} s, launching kernels as fast as they may")
    with open(shared + "/go", "w"):
        pass
    began = time.monotonic()
    time.sleep(SETTLE_SECONDS)
    before = [_held(device, container) for container in containers]

    at_limit = a.wait_for("alloc", START_SECONDS)
    _print(f"A asks for memory until it is refused: {at_limit.strip()}")
    for container in containers:
        seen = container.wait_for("smi", START_SECONDS)
        _print(f"nvidia-smi inside {container.name}:\n{seen.rstrip()}")
    _print("vcuda ps on the host:")
    ps.ps_of(device.settings)
    _print("a third container: vcuda run --core 30 --memory 4GiB")
    refusal = _refused(vcuda, gpu.uuid)
    _print(f"refused: {refusal}")

    time.sleep(max(0, began + seconds - SETTLE_SECONDS - time.monotonic()))
    after = [_held(device, container) for container in containers]
    for container in containers:
        container.wait(seconds + SPARE_SECONDS)
    result: dict[str, Any] = {
        "device": device.kind,
        "gpu": {"uuid": gpu.uuid, "model": gpu.model, "memory_bytes": gpu.memory_bytes},
        "engine": engine,
        "seconds": seconds,
        "containers": [
            _measured(container, _percent(*held))
            for container, *held in zip(containers, before, after)
        ],
        "refusal": refusal,
    }
    _print("compute, asked and measured:")
    table.print_table(
        ("CONTAINER", "ASKED", "HELD", "WORK", "LIMIT", "FAILED AT"),
        [
            (
                entry["name"],
                f"{entry['core_asked_percent']} %",
                f"{entry['core_held_percent']:.1f} %",
                f"{entry['core_measured_percent']:.1f} %",
                table.size(entry["memory_limit_bytes"]),
                table.size(entry["allocation_failed_at_bytes"]),
            )
            for entry in result["containers"]
        ],
    )
    failures = judge(result)
    return {"ok": not failures, "failures": failures, **result}


def judge(result: dict[str, Any]) -> list[str]:
    """The promises that did not hold, one line each.

    A share is the time that the container holds the GPU. It may work less: on a busy host its own
    threads wake late.
    """
    failures = []
    for entry in result["containers"]:
        name, asked = entry["name"], entry["core_asked_percent"]
        held, work = entry["core_held_percent"], entry["core_measured_percent"]
        if abs(held - asked) > TOLERANCE_POINTS:
            failures.append(f"{name} held the GPU {held:.1f} % of the time, not {asked} %")
        elif not 0 < work < asked + TOLERANCE_POINTS:
            failures.append(f"{name} worked {work:.1f} % of the GPU's time, not {asked} %")
        limit, failed_at = entry["memory_limit_bytes"], entry["allocation_failed_at_bytes"]
        if failed_at != limit:
            failures.append(f"{name} could allocate {failed_at} bytes, its limit is {limit}")
        if entry["allocation_error"] != OUT_OF_MEMORY:
            failures.append(f"{name}'s allocation ended with {entry['allocation_error']}")
    if "largest free share is " not in result["refusal"]:
        failures.append("the third container was not refused with what would fit")
    return failures


def _held(device: Device, container: Container) -> tuple[float, int]:
    """The time, and the nanoseconds that the container has held the GPU in turns until then."""
    path = f"{device.settings.state_dir}/containers/{container.id}/limits"
    page = page_reader.read_limits(page_file.read_page(path, layout.LIMITS_SIZE))
    return time.monotonic(), page.gpus[0].turn_held_ns


def _percent(before: tuple[float, int], after: tuple[float, int]) -> float:
    return (after[1] - before[1]) / 1e7 / (after[0] - before[0])


def _measured(container: Container, held_percent: float) -> dict[str, Any]:
    busy, alloc = container.report("busy.done"), container.report("alloc")
    return {
        "name": container.name,
        "core_asked_percent": container.core,
        "core_held_percent": round(held_percent, 2),
        "core_measured_percent": round(100 * busy["share"], 2),
        "memory_limit_bytes": container.memory,
        "allocation_failed_at_bytes": alloc["exact_bytes"],
        "allocation_error": alloc["error"],
        "kernels": busy["kernels"],
        "wall_seconds": busy["wall_seconds"],
    }


def _refused(vcuda: list[str], gpu_uuid: str) -> str:
    """The error line that refuses a third container; "": it was not refused."""
    tried = subprocess.run(
        [*request(vcuda, 30, 4 * GIB, gpu_uuid), "--", "true"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    return tried.stderr.strip() if tried.returncode == 1 else ""


def _wait_until_released(ledger: Ledger, runtime: str) -> None:
    """Wait until the watchers of killed containers have released their shares."""
    deadline = time.monotonic() + SPARE_SECONDS
    while time.monotonic() < deadline:
        known = f"{ledger.state_dir}/{runtime}"
        if ledger.read() == ([], []) and not (os.path.isdir(known) and os.listdir(known)):
            with ledger:  # a release holds it until its event is written
                return
        time.sleep(0.05)


def _write(path: str | None, result: dict[str, Any]) -> None:
    if not path:
        return
    try:
        with open(path, "w") as file:
            file.write(json.dumps(result, indent=2) + "\n")
    except OSError as error:
        raise VcudaError(
            f"cannot be written: {error.strerror}", path, "name another --json-out"
        ) from error


def _print(text: str) -> None:
    print(f"{table.coloured('[demo]', 'bold')} {text}", flush=True)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt
