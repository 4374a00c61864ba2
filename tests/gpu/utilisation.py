"""Whether NVML's utilisation of a process is true: beside the work that the process did."""

from __future__ import annotations

import json
import subprocess
import sys

from bench.result import Figure
from gpu.compute import SHAPES, Compute
from gpu.machine import UnmeasuredError, answer, wait_until_ready

SHAPE = SHAPES["sync 5 ms"]
PERCENT = 30

# Percent by pid, the mean of what NVML reports in so many seconds.
SAMPLE = """
import json, statistics, sys, time
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
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


def points_off(compute: Compute, running: list[subprocess.Popen[str]]) -> float:
    """The largest difference to the work, in points of the GPU.

    Raises UnmeasuredError: NVML has no such figure, or not of these processes.
    """
    machine = compute.machine
    try:
        for process in running:
            wait_until_ready(process)
        words = (machine.uuid, str(compute.seconds))
        sampler = machine.start(sys.executable, "-c", SAMPLE, *words)
        out, err = sampler.communicate(timeout=compute.seconds + 60)
        if sampler.returncode:
            raise UnmeasuredError(err.strip().splitlines()[-1])
        percents = json.loads(out)
        works = [100 * compute.gpu_share(answer(process)) for process in running]
    finally:
        for process in running:
            process.kill()
    pids = [str(process.pid) for process in running]
    if not all(pid in percents for pid in pids):
        raise UnmeasuredError("NVML reports no utilisation of the processes of this pid namespace")
    return max(abs(percents[pid] - work) for pid, work in zip(pids, works))


def truth(compute: Compute) -> list[Figure]:
    machine, command = compute.machine, compute.command(SHAPE)
    limited = [machine.start_in(machine.container(PERCENT), *command)]
    figures = [("alone at 30 %", points_off(compute, limited))]
    two = [machine.start(*command) for _ in range(2)]
    figures.append(("of two processes", points_off(compute, two)))
    return [
        Figure(f"nvml.utilisation {name}", off, "points off", None, {}) for name, off in figures
    ]
