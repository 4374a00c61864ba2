"""The shim's own driver calls invalidate no stream capture."""

from __future__ import annotations

import json
import subprocess

import pytest

from shim.cuda_program import START
from support.gpu.guest import GIB, PYTHON, share

# One thread captures in MODE and launches nothing outside of its capture; another makes one kind of
# call meanwhile. Printed is what each call and the end of the capture answered.
PROGRAM = (
    START
    + """
import threading
modes = cu.CUstreamCaptureMode
mode = getattr(modes, "CU_STREAM_CAPTURE_MODE_" + sys.argv[1])
ptx = b'''//softgpu entry=work time_ns=100000
.version 8.0
.target sm_80
.address_size 64
.visible .entry work() { ret; }
\\0'''
work = must(cu.cuModuleGetFunction(must(cu.cuModuleLoadData(ptx)), b"work"))
captured = must(cu.cuStreamCreate(1))
stream, other = must(cu.cuStreamCreate(1)), must(cu.cuStreamCreate(1))
device, host = must(cu.cuMemAlloc(4096)), bytearray(4096)
def launch(where):
    return cu.cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, where, 0, 0)
def graph():
    made = must(cu.cuGraphCreate(0))
    params = cu.CUDA_KERNEL_NODE_PARAMS()
    params.func = work
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    must(cu.cuGraphAddKernelNode(made, None, 0, params))
    return must(cu.cuGraphInstantiate(made, 0))
run = graph()
def own_pool():
    made = cu.CUmemPoolProps()
    made.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return must(cu.cuMemPoolCreate(made))
pool = own_pool()
event = must(cu.cuEventCreate(0))
def allocate_and_free():
    answer = cu.cuMemAllocAsync(1 << 20, stream)
    return cu.cuMemFreeAsync(answer[1], stream) if answer[0] == 0 else answer
def from_own_pool():
    answer = cu.cuMemAllocFromPoolAsync(1 << 20, pool, stream)
    return cu.cuMemFreeAsync(answer[1], stream) if answer[0] == 0 else answer
calls = {
    "launch": lambda: launch(stream),
    "launch in two streams": lambda: launch(stream) and launch(other),
    "launch a graph": lambda: cu.cuGraphLaunch(run, stream),
    "copy": lambda: cu.cuMemcpyHtoDAsync(device, host, 4096, stream),
    "set": lambda: cu.cuMemsetD8Async(device, 1, 4096, stream),
    "record": lambda: cu.cuEventRecord(event, stream),
    "allocate asynchronously": allocate_and_free,
    "allocate asynchronously from a pool": from_own_pool,
    "ask for free memory": lambda: cu.cuMemGetInfo(),
    "set a limit": lambda: cu.cuCtxSetLimit(cu.CUlimit.CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 22),
    "allocate": lambda: cu.cuMemAlloc(1 << 20),
    "ask for an event": lambda: cu.cuEventQuery(event),
    "wait for an event": lambda: cu.cuEventSynchronize(event),
    "wait for a stream": lambda: cu.cuStreamSynchronize(stream),
    "wait for all": lambda: cu.cuCtxSynchronize(),
}
def elsewhere(function):
    def body():
        must(cu.cuCtxSetCurrent(context))
        function()
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
found = {}
for name, call in calls.items():
    answers = set()
    def repeat():
        for _ in range(200):
            answers.add(call()[0].name)
    must(cu.cuStreamBeginCapture(captured, mode))
    (elsewhere if sys.argv[2] == "another" else lambda function: function())(repeat)
    found[name] = sorted(answers), cu.cuStreamEndCapture(captured)[0].name
    must(cu.cuCtxSynchronize())
print(json.dumps(found))
"""
)


@pytest.mark.parametrize("thread", ["another", "the same"])
@pytest.mark.parametrize("mode", ["GLOBAL", "THREAD_LOCAL"])
def test_a_capture_ends_as_it_does_without_the_shim(host, new_guest, mode, thread):
    guest = new_guest(share(host.uuids[0], GIB, 50))
    libraries = f"{host.path}/usr/lib/x86_64-linux-gnu"
    bare = subprocess.run(
        [PYTHON, "-c", PROGRAM, mode, thread],
        env={"SOFTGPU_ROOT": host.path, "LD_LIBRARY_PATH": libraries},
        capture_output=True,
        text=True,
        check=False,
    )
    assert bare.returncode == 0, bare.stderr
    expected = json.loads(bare.stdout)
    launched = [["CUDA_SUCCESS"], "CUDA_SUCCESS"]
    spoilt = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    assert (expected["launch"], expected["allocate asynchronously"]) == (launched, launched)
    forbidden = mode == "GLOBAL" or thread == "the same"
    assert expected["ask for an event"][1] == (spoilt if forbidden else "CUDA_SUCCESS")
    assert guest.python(PROGRAM, mode, thread) == expected
