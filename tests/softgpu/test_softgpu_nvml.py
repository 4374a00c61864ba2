"""The software GPU's NVML, through its usual clients."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import BUILT, SoftGpu, answer, first_line

GIB = 1 << 30


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "8GiB", "--seed", "9")


LOOK = """
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
newer = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
assert (newer.total, newer.used, newer.free) == (memory.total, memory.used, memory.free)
processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
say(count=pynvml.nvmlDeviceGetCount(), name=pynvml.nvmlDeviceGetName(device),
    driver=pynvml.nvmlSystemGetDriverVersion(), cuda=pynvml.nvmlSystemGetCudaDriverVersion(),
    total=memory.total, used=memory.used,
    utilisation=pynvml.nvmlDeviceGetUtilizationRates(device).gpu,
    processes={process.pid: process.usedGpuMemory for process in processes})
pynvml.nvmlShutdown()
"""


def test_pynvml_sees_the_device_and_an_idle_one_is_empty(gpu: SoftGpu) -> None:
    assert gpu.client(LOOK) == {
        "count": 1,
        "name": "vcuda Software GPU",
        "driver": "580.95.05",
        "cuda": 13000,
        "total": 8 * GIB,
        "used": 0,
        "utilisation": 0,
        "processes": {},
    }


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("525.60", 12000), ("550.54.15", 12040), ("565", 12070), ("600.1", 13010), ("615.10", 13040)],
)
def test_driver_has_the_cuda_of_its_branch_also_before_cuinit(
    tmp_path: Path, driver: str, cuda: int
) -> None:
    gpu = SoftGpu(tmp_path, "--driver-version", driver)
    asked = gpu.client(
        "import pynvml\n"
        "from cuda.bindings import driver\n"
        "before = driver.cuDriverGetVersion()[1]\n"
        "driver.cuInit(0)\n"
        "pynvml.nvmlInit()\n"
        "say(answers=[before, driver.cuDriverGetVersion()[1],\n"
        "             pynvml.nvmlSystemGetCudaDriverVersion()])"
    )
    assert asked == {"answers": [cuda] * 3}


@pytest.mark.timed
def test_pynvml_sees_memory_and_load_by_process(gpu: SoftGpu) -> None:
    busy = gpu.start_workload(
        "busy", "--seconds", "60", "--kernel-us", "1000", "--async", "64", "--allocate", "2GiB"
    )
    holder = gpu.start_workload("hold", "--bytes", "1GiB", "--seconds", "60")
    first_line(holder)
    time.sleep(1.5)  # utilisation is that of the last second
    seen = gpu.client(LOOK)
    for process in (busy, holder):
        process.kill()
        process.communicate()
    assert seen["used"] == 3 * GIB
    assert seen["utilisation"] >= 97
    assert seen["processes"] == {str(busy.pid): 2 * GIB, str(holder.pid): GIB}
    assert gpu.client(LOOK)["used"] == 0


def test_unsupported_call_returns_not_supported(gpu: SoftGpu) -> None:
    gpu.client("""
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
for ask in (pynvml.nvmlDeviceGetSerial, pynvml.nvmlDeviceGetFanSpeed):
    try:
        ask(device)
    except pynvml.NVMLError_NotSupported:
        continue
    raise AssertionError(ask)
say(done=True)
""")


def test_nvml_without_a_state_file_has_no_driver(gpu: SoftGpu) -> None:
    (gpu.root / "softgpu.state").unlink()
    done = gpu.run(str(gpu.root / "usr/bin/nvidia-smi"))
    assert done.returncode != 0
    assert done.stderr == ("nvidia-smi: NVML: Driver Not Loaded; run it where a GPU is granted\n")


def test_nvitop_shows_the_device_and_its_process(gpu: SoftGpu) -> None:
    holder = gpu.start_workload("hold", "--bytes", "3GiB", "--seconds", "60")
    first_line(holder)
    done = gpu.run(sys.executable, "-m", "nvitop", "--once", "--ascii")
    holder.kill()
    holder.communicate()
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "3072MiB / 8192MiB" in done.stdout
    assert str(holder.pid) in done.stdout


def test_gpustat_shows_the_whole_device_and_its_process(gpu: SoftGpu) -> None:
    holder = gpu.start_workload("hold", "--bytes", "3GiB", "--seconds", "60")
    first_line(holder)
    done = gpu.run(sys.executable, "-m", "gpustat", "--show-pid", "--no-color")
    holder.kill()
    holder.communicate()
    assert done.returncode == 0, done.stderr
    assert "3072 / 8192 MB" in " ".join(done.stdout.split())
    assert f"/{holder.pid}(3072M)" in done.stdout


def test_nvidia_smi_shows_table_list_and_fields(gpu: SoftGpu) -> None:
    holder = gpu.start_workload("hold", "--bytes", "3GiB", "--seconds", "60")
    first_line(holder)
    table, names = gpu.smi(), gpu.smi("-L")
    fields = gpu.smi("--query-gpu=index,memory.used,memory.total,driver_version", "--format=csv")
    bare = gpu.smi("--query-gpu=memory.free", "--format=csv,noheader,nounits")
    holder.kill()
    holder.communicate()
    assert "3072 / 8192 MiB" in table
    assert f" {holder.pid} " in table
    assert len({len(line) for line in table.splitlines() if line}) == 1
    uuid = gpu.workload("info")["devices"][0]["uuid"]
    assert names == f"GPU 0: vcuda Software GPU (UUID: {uuid})\n"
    assert fields == (
        "index, memory.used [MiB], memory.total [MiB], driver_version\n"
        "0, 3072 MiB, 8192 MiB, 580.95.05\n"
    )
    assert bare == "5120\n"


def test_the_host_sees_a_process_of_another_pid_namespace_under_its_own_number(
    gpu: SoftGpu,
) -> None:
    inside = gpu.popen(
        [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "sh",
            "-c",
            f"{BUILT}/vcuda-workload hold --bytes 1GiB --seconds 60; :",
        ]
    )
    first_line(inside)
    seen = gpu.client(LOOK)["processes"]
    (pid,) = seen
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    inside.kill()
    inside.communicate()
    assert b"vcuda-workload" in command
    assert seen[pid] == GIB


def test_two_namespaces_with_the_same_pids_do_not_mistake_each_other(gpu: SoftGpu) -> None:
    """Process 2 of one container is killed while process 2 of another works on."""

    def contained(*arguments: str) -> list[str]:
        command = " ".join([str(BUILT / "vcuda-workload"), *arguments])
        return [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "sh",
            "-c",
            f"{command}; :",
        ]

    survivor = gpu.popen(contained("busy", "--seconds", "3", "--kernel-us", "50", "--async", "32"))
    for _ in range(10):
        victim = gpu.popen(
            contained("busy", "--seconds", "60", "--kernel-us", "1", "--allocate", "1GiB")
        )
        time.sleep(0.1)
        victim.kill()
        victim.communicate()
    assert answer(survivor)["kernels"] > 1000
    assert gpu.workload("info")["devices"][0]["free_bytes"] == 8 * GIB
