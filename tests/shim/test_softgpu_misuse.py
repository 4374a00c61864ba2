"""The software GPU answers misuse with the error that cuda.h documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from shim.softgpu_host import SoftGpu

MISUSE = {
    "memory is freed twice": ("twice(cuda.cuMemFree, ok(cuda.cuMemAlloc(8)))", "INVALID_VALUE"),
    "memory is freed in its middle": (
        "cuda.cuMemFree(int(ok(cuda.cuMemAlloc(8))) + 4)",
        "INVALID_VALUE",
    ),
    "nothing is allocated": ("cuda.cuMemAlloc(0)", "INVALID_VALUE"),
    "too much is allocated": ("cuda.cuMemAlloc(1 << 50)", "OUT_OF_MEMORY"),
    "all addresses are allocated": ("cuda.cuMemAlloc((1 << 64) - 1)", "OUT_OF_MEMORY"),
    "a copy goes past its end": (
        "cuda.cuMemcpyHtoD(ok(cuda.cuMemAlloc(8)), bytes(9), 9)",
        "INVALID_VALUE",
    ),
    "host memory is freed twice": (
        "twice(cuda.cuMemFreeHost, ok(cuda.cuMemAllocHost(8)))",
        "INVALID_VALUE",
    ),
    "unregistered memory is unregistered": (
        "cuda.cuMemHostUnregister(4096)",
        "HOST_MEMORY_NOT_REGISTERED",
    ),
    "a stream is destroyed twice": (
        "twice(cuda.cuStreamDestroy, ok(cuda.cuStreamCreate(0)))",
        "INVALID_HANDLE",
    ),
    "a destroyed stream is waited for": (
        "after(cuda.cuStreamDestroy, cuda.cuStreamSynchronize, ok(cuda.cuStreamCreate(0)))",
        "INVALID_HANDLE",
    ),
    "a stream has unknown flags": ("cuda.cuStreamCreate(8)", "INVALID_VALUE"),
    "an event is destroyed twice": (
        "twice(cuda.cuEventDestroy, ok(cuda.cuEventCreate(0)))",
        "INVALID_HANDLE",
    ),
    "unrecorded events are compared": (
        "cuda.cuEventElapsedTime(ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(0)))",
        "INVALID_HANDLE",
    ),
    "a module is unloaded twice": (
        "twice(cuda.cuModuleUnload, ok(cuda.cuModuleLoadData(PTX)))",
        "INVALID_HANDLE",
    ),
    "a variable is not in the module": (
        "cuda.cuModuleGetGlobal(ok(cuda.cuModuleLoadData(PTX)), b'none')",
        "NOT_FOUND",
    ),
    "a kernel has no threads": (
        "cuda.cuLaunchKernel(kernel(b'untimed'), 1, 1, 1, 0, 1, 1, 0, 0, 0, 0)",
        "INVALID_VALUE",
    ),
    "a kernel has too many threads": (
        "cuda.cuLaunchKernel(kernel(b'untimed'), 1, 1, 1, 1024, 2, 1, 0, 0, 0, 0)",
        "INVALID_VALUE",
    ),
    "a context is destroyed twice": (
        "twice(cuda.cuCtxDestroy, ok(cuda.cuCtxCreate(None, 0, 0)))",
        "INVALID_CONTEXT",
    ),
    "no context is current": (
        "after(lambda _: cuda.cuCtxSetCurrent(None), cuda.cuMemAlloc, 8)",
        "INVALID_CONTEXT",
    ),
    "the current context was destroyed elsewhere": (
        "destroyed_elsewhere()",
        "CONTEXT_IS_DESTROYED",
    ),
    "a device is not there": ("cuda.cuDeviceGet(7)", "INVALID_DEVICE"),
    "a pool is destroyed twice": (
        "cuda.cuMemPoolDestroy(ok(cuda.cuDeviceGetDefaultMemPool(0)))",
        "INVALID_VALUE",
    ),
    "an unknown physical handle is released": ("cuda.cuMemRelease(12345)", "INVALID_VALUE"),
    "a handle of nobody is opened": (
        "cuda.cuIpcOpenMemHandle(cuda.CUipcMemHandle(), 1)",
        "INVALID_VALUE",
    ),
}


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> SoftGpu:
    folder: Path = tmp_path_factory.mktemp("misuse")
    return SoftGpu(folder)


@pytest.mark.parametrize("misuse", MISUSE)
def test_misuse_is_answered_as_documented_when(gpu: SoftGpu, misuse: str) -> None:
    call, error = MISUSE[misuse]
    gpu.client(
        """
import threading
first = start()
def twice(destroy, handle):
    ok(destroy(handle))
    return destroy(handle)
def after(destroy, use, handle):
    ok(destroy(handle))
    return use(handle)
def destroyed_elsewhere():
    def destroy():
        ok(cuda.cuCtxDestroy(first))
    thread = threading.Thread(target=destroy)
    thread.start()
    thread.join()
    return cuda.cuMemAlloc(8)
"""
        + f"answer = {call}\n"
        + f"assert answer[0] == cuda.CUresult.CUDA_ERROR_{error}, answer\nsay(done=True)\n"
    )


def test_a_modules_variables_are_memory_that_is_counted_while_it_is_loaded(gpu: SoftGpu) -> None:
    gpu.client(
        """
start()
def used():
    free, total = ok(cuda.cuMemGetInfo())
    return total - free
text = b'''
.version 7.0
.target sm_50
.address_size 64
.visible .global .align 8 .b8 buffer[1000];
.visible .const .align 4 .f32 table[4][2];
.global .u64 counter;
.visible .entry work() { ld.global .u64 %r, [counter]; ret; }
'''
module = ok(cuda.cuModuleLoadData(text))
assert used() == 1000 + 32 + 8
start_of, bytes_of = ok(cuda.cuModuleGetGlobal(module, b"table"))
assert bytes_of == 32
ok(cuda.cuMemcpyHtoD(start_of, bytes(range(32)), 32))
ok(cuda.cuModuleUnload(module))
assert used() == 0
say(done=True)
"""
    )
