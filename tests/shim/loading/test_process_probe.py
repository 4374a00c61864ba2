"""The agent's NVML queries about processes, on the software GPU."""

from __future__ import annotations

import time
from pathlib import Path

from support.softgpu.softgpu_host import BUILT, SoftGpu, first_line

GIB = 1 << 30
LOOK = """
sys.path[:0] = ["oci", "runtime_hook", "plugin"]
import pynvml
from vcuda_plugin.agent.bypass.process_probe import ProcessProbe
pynvml.nvmlInit()
uuids = [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(2)]
probe = ProcessProbe("libnvidia-ml.so.1", uuids)
probe.poll()
time.sleep(0.1)
say(uuids=uuids, seen=[list(process) for process in probe.poll()])
"""


def test_each_process_has_its_gpu_its_memory_and_its_time(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--gpus", "2", "--memory", "8GiB", "--context-memory", "1GiB")
    words = ["--seconds", "60", "--kernel-us", "1000", "--async", "64", "--allocate", "2GiB"]
    busy = gpu.start_workload("busy", *words)
    holder = gpu.start_workload("hold", "--bytes", "3GiB", "--seconds", "60", "--device", "1")
    first_line(holder)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        printed = gpu.client(LOOK)
        percents = {process[0]: process.pop(3) for process in printed["seen"]}
        if percents.get(busy.pid, 0) >= 90:
            break
    for process in (busy, holder):
        process.kill()
        process.communicate()
    first, second = printed["uuids"]
    assert printed["seen"] == [
        [busy.pid, first, 3 * GIB, True],
        [holder.pid, second, 4 * GIB, True],
    ]
    assert percents[busy.pid] >= 90 and percents[holder.pid] == 0
    assert gpu.client(LOOK)["seen"] == []


def test_a_gpu_that_is_lost_hides_no_other(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--gpus", "2", "--memory", "8GiB")
    holder = gpu.start_workload("hold", "--bytes", "3GiB", "--seconds", "60", "--device", "1")
    first_line(holder)
    lose = f"""
import subprocess
subprocess.run([{str(BUILT / "softgpu")!r}, "fail", {str(gpu.root)!r}, "--lost", "0"], check=True)
time.sleep(0.1)
say(seen=[list(process) for process in probe.poll()], lost=uuids[0])
"""
    printed = gpu.client(LOOK.rpartition("say(")[0] + lose)
    holder.kill()
    holder.communicate()
    assert [process[0] for process in printed["seen"]] == [holder.pid]
