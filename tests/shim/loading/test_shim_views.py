"""Output of monitoring tools in a container that has some of the host's GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any

import pytest

from shim.conftest import LIBRARIES, DriverRoot
from support.gpu.guest import GIB, NVIDIA_SMI, PYTHON, WORKLOAD, Guest, share

# As a container's device nodes are: only those that were granted.
WITH_NODES = """
mount -t tmpfs none "$SOFTGPU_ROOT/dev"
mknod "$SOFTGPU_ROOT/dev/nvidiactl" c 195 255
for minor in $MINORS; do mknod "$SOFTGPU_ROOT/dev/nvidia$minor" c 195 "$minor"; done
exec "$@"
"""

# Per tool and GPU: UUID, total and used MiB, utilisation in percent, and MiB by process.
TOOLS = """
import json, subprocess, sys
import gpustat, nvitop
import pynvml as nv

def mib(number):
    return number // (1 << 20)

def by_pynvml():
    nv.nvmlInit()
    for index in range(nv.nvmlDeviceGetCount()):
        gpu = nv.nvmlDeviceGetHandleByIndex(index)
        memory = nv.nvmlDeviceGetMemoryInfo(gpu)
        held = {p.pid: mib(p.usedGpuMemory) for p in nv.nvmlDeviceGetComputeRunningProcesses(gpu)}
        busy = nv.nvmlDeviceGetUtilizationRates(gpu).gpu
        yield nv.nvmlDeviceGetUUID(gpu), mib(memory.total), mib(memory.used), busy, held

def by_gpustat():
    for gpu in gpustat.GPUStatCollection.new_query().gpus:
        held = {p["pid"]: p["gpu_memory_usage"] or 0 for p in gpu.processes}
        yield gpu.uuid, gpu.memory_total, gpu.memory_used, gpu.utilization, held

def by_nvitop():
    for gpu in nvitop.Device.all():
        held = {pid: mib(p.gpu_memory()) for pid, p in gpu.processes().items()}
        memory = gpu.memory_info()
        yield gpu.uuid(), mib(memory.total), mib(memory.used), gpu.gpu_utilization(), held

def by_nvidia_smi():
    fields = "--query-gpu=uuid,memory.total,memory.used,utilization.gpu"
    command = [sys.argv[1], fields, "--format=csv,noheader,nounits"]
    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
        uuid, *numbers = line.split(", ")
        yield uuid, *map(int, numbers), None

print(json.dumps({each.__name__: list(each())
                  for each in (by_pynvml, by_gpustat, by_nvitop, by_nvidia_smi)}))
"""


def start(guest: Guest, minors: str, *command: str) -> subprocess.Popen[str]:
    return guest.start("sh", "-ec", WITH_NODES, "sh", *command, env={"MINORS": minors})


def seen(guest: Guest, minors: str) -> Any:
    out, err = start(guest, minors, PYTHON, "-c", TOOLS, NVIDIA_SMI).communicate(timeout=60)
    assert out, err
    return json.loads(out)


def at_work(host: DriverRoot, guest: Guest, minors: str) -> list[subprocess.Popen[str]]:
    """Two processes on the container's first GPU: one holds a GiB, one computes."""
    hold = start(guest, minors, WORKLOAD, "hold", "--bytes", str(GIB), "--seconds", "60")
    assert hold.stdout and hold.stdout.readline()
    busy = ["busy", "--seconds", "60", "--kernel-us", "1000", "--async", "16"]
    return [hold, start(guest, minors, WORKLOAD, *busy)]


@pytest.mark.timed
@pytest.mark.parametrize("minors", ["1", "0 1"], ids=["the second GPU alone", "both, swapped"])
def test_every_tool_shows_the_slices_their_use_and_the_containers_own_processes(
    host, new_guest, minors
):
    first, second = host.uuids
    guest = new_guest(share(second, 3 * GIB, 30), share(first, 2 * GIB, 50))
    neighbour = new_guest(share(first, GIB), share(second, GIB))
    processes = at_work(host, guest, minors)
    processes += at_work(host, neighbour, minors)
    try:
        time.sleep(2.5)
        tools = seen(guest, minors)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    own = {str(processes[0].pid): 1024, str(processes[1].pid): 0}
    in_use = pytest.approx(100, abs=10)
    expected = {
        "1": [[second, 3072, 1024, in_use, own]],
        "0 1": [[first, 2048, 1024, in_use, own], [second, 3072, 0, 0, {}]],
    }[minors]
    without_processes = [[*gpu[:4], None] for gpu in expected]
    assert tools == {
        "by_pynvml": expected,
        "by_gpustat": expected,
        "by_nvitop": expected,
        "by_nvidia_smi": without_processes,
    }


# Every pynvml call about one GPU, without those that the shim answers itself.
QUESTIONS = """
import json
import pynvml as nv
nv.nvmlInit()
gpu = nv.nvmlDeviceGetHandleByIndex(1)
ours = ("MemoryInfo", "UtilizationRates", "ComputeRunningProcesses")
answers = {}
for name in dir(nv):
    if not name.startswith("nvmlDeviceGet") or any(each in name for each in ours):
        continue
    try:
        answer = getattr(nv, name)(gpu)
    except TypeError:
        continue  # it asks for more than a GPU
    except nv.NVMLError as error:
        answer = error
    answers[name] = str(answer).split(" object at ")[0]
print(json.dumps(answers))
"""


def test_queries_outside_the_share_are_answered_by_the_driver(host, new_guest):
    inside = new_guest(share(host.uuids[1], GIB, 30)).python(QUESTIONS)
    bare = {"LD_LIBRARY_PATH": os.path.join(host.path, LIBRARIES), "SOFTGPU_ROOT": host.path}
    out = subprocess.run([PYTHON, "-c", QUESTIONS], env=bare, capture_output=True, check=True)
    assert inside == json.loads(out.stdout)
    assert inside["nvmlDeviceGetMigMode"] == "[0, 0]"
    assert "Not Supported" in inside.values()
    assert {"nvmlDeviceGetName", "nvmlDeviceGetPciInfo", "nvmlDeviceGetEncoderSessions"} <= set(
        inside
    )
