"""Whether NVML's utilisation of a process is true: beside the work that the process did."""

from __future__ import annotations

import os
import sys

from bench.result import Figure
from gpu.machine import Container, UnmeasuredError, answer, wait_until_ready
from gpu.time.compute import SHAPES, Compute

SHAPE = SHAPES["sync 5 ms"]
PERCENT = 30
LONGER_S = 1.0  # than the samples: the processes must live

# Percent by pid, the mean of what NVML reports in so many seconds, once a file is there.
SAMPLE = """
import json, os, statistics, sys, time
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
print("{}", flush=True)
while not os.path.exists(sys.argv[3]):
    time.sleep(0.002)
seen, last_us, end = {}, int(time.time() * 1e6), time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    time.sleep(float(sys.argv[2]) / 10)
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(device, last_us)
    except pynvml.NVMLError_NotFound:
        continue
    for sample in samples:
        if sample.timeStamp > last_us:
            seen.setdefault(sample.pid, []).append(sample.smUtil)
    last_us = max([last_us, *(sample.timeStamp for sample in samples)])
print(json.dumps({pid: statistics.fmean(values) for pid, values in seen.items()}))
"""


def points_off(compute: Compute, containers: list[Container | None], name: str) -> Figure:
    """The largest difference to the work, in points of the GPU. None: on the driver alone.

    Raises UnmeasuredError: NVML has no such figure, or not of these processes.
    """
    machine = compute.machine
    start_file = os.path.join(machine.folder, f"utilisation-{machine.containers}-{len(containers)}")
    command = compute.command(SHAPE, start_file, seconds=compute.seconds + LONGER_S)
    running = [
        machine.start_in(container, *command) if container else machine.start(*command)
        for container in containers
    ]
    words = (machine.uuid, str(compute.seconds), start_file)
    sampler = machine.start(sys.executable, "-c", SAMPLE, *words)
    try:
        for process in (*running, sampler):
            wait_until_ready(process)
        with open(start_file, "w", encoding="ascii"):
            pass
        percents = answer(sampler)
        works = [100 * compute.gpu_share(answer(process)) for process in running]
    finally:
        for process in (*running, sampler):
            process.kill()
    pids = [str(process.pid) for process in running]
    if not all(pid in percents for pid in pids):
        raise UnmeasuredError("NVML reports no utilisation of the processes of this pid namespace")
    found = [(percents[pid], work) for pid, work in zip(pids, works)]
    note = "; ".join(f"{percent:.0f} % of {work:.0f} %" for percent, work in found)
    off = max(abs(percent - work) for percent, work in found)
    return Figure(f"nvml.utilisation {name}", off, "points off", None, {}, note)


def truth(compute: Compute) -> list[Figure]:
    limited = compute.machine.container(PERCENT)
    return [
        points_off(compute, [limited], f"alone at {PERCENT} %"),
        points_off(compute, [None, None], "of two processes"),
    ]
