"""The software GPU's libcuda: look-up, modules, contexts, devices."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import BUILT, REPOSITORY, SoftGpu


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--gpus", "3", "--seed", "5", "--model", "Test GPU")


def headers() -> Path:
    found = REPOSITORY.glob("build/venv/lib/python3*/site-packages/nvidia/cu13/include")
    return next(iter(found))


def exported(library: Path) -> set[str]:
    names = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    )
    return {line.split()[2] for line in names.stdout.splitlines()}


def declared(header: str, define: str, result: str) -> set[str]:
    source = subprocess.run(
        ["gcc", "-E", "-P", f"-D{define}", str(headers() / header)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return set(re.findall(rf"\b{result}\s+(\w+)\s*\(", source))


def test_libcuda_exports_what_cuda_h_declares_and_nothing_else() -> None:
    names = declared("cuda.h", "__CUDA_API_VERSION_INTERNAL", "CUresult")
    assert len(names) > 600
    assert exported(BUILT / "libcuda.so.1") == names


def test_libnvidia_ml_exports_what_nvml_h_declares_and_nothing_else() -> None:
    names = declared("nvml.h", "NVML_NO_UNVERSIONED_FUNC_DEFS", "nvmlReturn_t")
    assert len(names) > 400
    private = {"nvmlErrorString", "nvmlInternalGetExportTable"}  # no header names the second
    assert exported(BUILT / "libnvidia-ml.so.1") == names | private


def test_get_proc_address_answers_with_the_version_that_was_asked_for(gpu: SoftGpu) -> None:
    gpu.client("""
library = ctypes.CDLL("libcuda.so.1")
def address(name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
def asked(symbol, version, flags=0):
    pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
    rc = library.cuGetProcAddress_v2(symbol, ctypes.byref(pointer), version,
                                     ctypes.c_uint64(flags), ctypes.byref(status))
    return rc, pointer.value, status.value
per_thread = 2
assert asked(b"cuMemAlloc", 12000) == (0, address("cuMemAlloc_v2"), 0)
assert asked(b"cuMemAlloc", 2000) == (0, address("cuMemAlloc"), 0)
assert asked(b"cuCtxCreate", 11040) == (0, address("cuCtxCreate_v3"), 0)
assert asked(b"cuCtxCreate", 13000) == (0, address("cuCtxCreate_v4"), 0)
assert asked(b"cuMemcpyHtoD", 12000, per_thread) == (0, address("cuMemcpyHtoD_v2_ptds"), 0)
assert asked(b"cuLaunchKernel", 12000, per_thread) == (0, address("cuLaunchKernel_ptsz"), 0)
assert asked(b"cuInit", 12000, per_thread) == (0, address("cuInit"), 0)
assert asked(b"cuGetProcAddress", 11030) == (0, address("cuGetProcAddress"), 0)
assert asked(b"cuGetProcAddress", 12000) == (0, address("cuGetProcAddress_v2"), 0)
assert asked(b"cuMemAllocAsync", 10000) == (0, None, 2)
assert asked(b"cuNoSuchThing", 12000) == (0, None, 1)
say(done=True)
""")


def test_kernels_are_found_by_their_names_in_the_text(gpu: SoftGpu) -> None:
    gpu.client("""
start()
missing = cuda.CUresult.CUDA_ERROR_NOT_FOUND
module = ok(cuda.cuModuleLoadData(PTX))
function = ok(cuda.cuModuleGetFunction(module, b"three_ms"))
assert ok(cuda.cuFuncGetName(function)) == b"three_ms"
assert ok(cuda.cuModuleGetFunctionCount(module)) == 3
for name in (b"three", b"commented_out", b"nanoseconds"):
    assert cuda.cuModuleGetFunction(module, name)[0] == missing
library = ok(cuda.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
ok(cuda.cuKernelGetFunction(ok(cuda.cuLibraryGetKernel(library, b"untimed"))))
assert cuda.cuModuleLoadData(b"nonsense")[0] == cuda.CUresult.CUDA_ERROR_INVALID_IMAGE
ok(cuda.cuModuleUnload(module))
say(done=True)
""")


def test_contexts_stack_as_cuda_says(gpu: SoftGpu) -> None:
    gpu.client("""
invalid = cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT
assert cuda.cuMemAlloc(1)[0] == cuda.CUresult.CUDA_ERROR_NOT_INITIALIZED
ok(cuda.cuInit(0))
assert cuda.cuMemAlloc(1)[0] == invalid
primary = ok(cuda.cuDevicePrimaryCtxRetain(1))
assert ok(cuda.cuDevicePrimaryCtxGetState(1)) == (0, 1)
ok(cuda.cuCtxSetCurrent(primary))
own = start(2)
assert int(ok(cuda.cuCtxGetDevice())) == 2
assert int(ok(cuda.cuCtxPopCurrent())) == int(own)
assert int(ok(cuda.cuCtxGetDevice())) == 1
ok(cuda.cuMemAlloc(1))
ok(cuda.cuDevicePrimaryCtxRelease(1))
assert ok(cuda.cuDevicePrimaryCtxGetState(1)) == (0, 0)
assert cuda.cuCtxPushCurrent(primary)[0] == invalid
ok(cuda.cuCtxPushCurrent(own))
assert ok(cuda.cuMemGetInfo())[0] == 16 << 30
say(done=True)
""")


def test_a_gpu_without_a_device_node_is_hidden_and_the_others_are_renumbered(
    gpu: SoftGpu,
) -> None:
    devices = gpu.workload("info")["devices"]
    assert [device["ordinal"] for device in devices] == [0, 1, 2]
    assert {device["name"] for device in devices} == {"Test GPU"}
    (gpu.root / "dev" / "nvidia1").unlink()
    visible = [(device["ordinal"], device["uuid"]) for device in gpu.workload("info")["devices"]]
    assert visible == [(0, devices[0]["uuid"]), (1, devices[2]["uuid"])]
    listed = gpu.smi("--query-gpu=index,uuid", "--format=csv,noheader").splitlines()
    assert listed == [f"{index}, {uuid}" for index, uuid in visible]
    for minor in (0, 2):
        (gpu.root / "dev" / f"nvidia{minor}").unlink()
    refused = gpu.run(str(BUILT / "vcuda-workload"), "info")
    assert refused.returncode == 1
    assert "CUDA_ERROR_NO_DEVICE" in refused.stderr


def test_a_seed_gives_the_same_gpus_and_no_seed_others(gpu: SoftGpu, tmp_path: Path) -> None:
    def uuids(folder: str, *options: str) -> list[str]:
        (tmp_path / folder).mkdir()
        there = SoftGpu(tmp_path / folder, *options).workload("info")["devices"]
        return [device["uuid"] for device in there]

    same = uuids("same", "--seed", "5", "--gpus", "3")
    assert same == [device["uuid"] for device in gpu.workload("info")["devices"]]
    assert len(set(same + uuids("one") + uuids("two"))) == 5


def test_the_driver_root_describes_its_gpus_as_a_driver_does(gpu: SoftGpu) -> None:
    described = (gpu.root / "proc/driver/nvidia/gpus/0000:02:00.0/information").read_text()
    fields = dict(re.split(r":\s+", line, maxsplit=1) for line in described.splitlines())
    assert fields["Model"] == "Test GPU"
    assert fields["GPU UUID"] == gpu.workload("info")["devices"][1]["uuid"]
    assert (fields["Bus Location"], fields["Device Minor"]) == ("0000:02:00.0", "1")
    assert "580.95.05" in (gpu.root / "proc/driver/nvidia/version").read_text()
    for name in ("libcuda.so", "libnvidia-ml.so"):
        assert (gpu.libraries / f"{name}.1").readlink() == Path(f"{name}.580.95.05")
    nodes = {node.name: node.stat() for node in (gpu.root / "dev").iterdir()}
    assert sorted(nodes) == [
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "nvidia0",
        "nvidia1",
        "nvidia2",
        "nvidiactl",
    ]
    assert nodes["nvidia2"].st_mode == 0o20666
    assert nodes["nvidia2"].st_rdev == 195 << 8 | 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "{}", "--gpus", "0"], "--gpus: 0; give a whole number from 1 to 16"),
        (["create", "{}", "--memory", "lots"], "--memory: lots; give a size such as 16GiB"),
        (["create", "{}", "--memory", "1.5.5GiB"], "--memory: 1.5.5GiB; give a size such as 16GiB"),
        (["create", "{}", "--memory", "16384"], "--memory: 16384; did you mean 16384MiB?"),
        (["create", "{}", "--driver-version", "x"], "--driver-version: x; give digits"),
        (["destroy", "{}"], "no driver root of a software GPU"),
        (["create"], "usage: "),
    ],
)
def test_invalid_request_is_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    place = tmp_path / "none"
    command = [str(BUILT / "softgpu"), *(word.format(place) for word in arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert said in done.stderr
    assert not place.exists()


def test_create_replaces_the_gpus_of_a_root_only_by_force(gpu: SoftGpu) -> None:
    def uuids() -> list[str]:
        return [device["uuid"] for device in gpu.workload("info")["devices"]]

    before, command = uuids(), [str(BUILT / "softgpu"), "create", str(gpu.root)]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert (refused.returncode, refused.stderr) == (
        1,
        f"softgpu: {gpu.root}: a software GPU is there already, and containers may use it; run "
        "'softgpu destroy' on it first, or give --force to create its GPUs again\n",
    )
    assert uuids() == before
    subprocess.run([*command, "--force", "--gpus", "1"], check=True)
    assert len(uuids()) == 1
    assert uuids()[0] not in before


def test_destroy_removes_all_files_of_create(gpu: SoftGpu) -> None:
    subprocess.run([BUILT / "softgpu", "destroy", gpu.root], check=True)
    assert not gpu.root.exists()


def test_a_client_that_finds_no_state_file_has_no_device(tmp_path: Path) -> None:
    """Loaded from the build folder, with nothing around it."""
    library = ctypes.CDLL(str(BUILT / "libcuda.so.1"))
    no_device = 100
    assert library.cuInit(0) == no_device


def test_a_container_finds_the_state_file_and_its_device_nodes_in_their_fixed_places(
    gpu: SoftGpu,
) -> None:
    """A mount namespace as a container has it: libraries in a folder of their own, the state file
    under /run, and in /dev only the nodes that were granted."""
    devices = gpu.workload("info")["devices"]
    uuids = [device["uuid"] for device in devices]
    script = f"""
set -e
mount -t tmpfs none /run
mkdir /run/softgpu /run/libraries
touch /run/softgpu/softgpu.state
mount --bind {gpu.root}/softgpu.state /run/softgpu/softgpu.state
cp {gpu.libraries}/* {gpu.root}/usr/bin/nvidia-smi {BUILT}/vcuda-workload /run/libraries
mount -t tmpfs none /dev
mknod /dev/nvidia1 c 195 1
export LD_LIBRARY_PATH=/run/libraries
/run/libraries/vcuda-workload info
/run/libraries/nvidia-smi -L
/run/libraries/vcuda-workload open /dev/nvidia1
"""
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    info, listed, opened = done.stdout.splitlines()
    assert json.loads(info)["devices"] == [{**devices[1], "ordinal": 0}]
    assert listed == f"GPU 0: Test GPU (UUID: {uuids[1]})"
    assert json.loads(opened) == {"path": "/dev/nvidia1", "errno": "ENXIO"}
