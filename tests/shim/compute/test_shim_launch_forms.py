"""Every entry point that launches a kernel is paced."""

from __future__ import annotations

import pytest

from shim.cuda_program import START
from support.gpu.guest import GIB, PYTHON, share
from support.softgpu.virtual_time import together

SECONDS = 5
KERNEL_MS = 5
LAUNCHES = {
    "cuLaunchKernel": "cu.cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)",
    "cuLaunchKernelEx": "cu.cuLaunchKernelEx(config, work, 0, 0)",
    "cuLaunchCooperativeKernel": "cu.cuLaunchCooperativeKernel(work, 1, 1, 1, 1, 1, 1, 0, 0, 0)",
}
PROGRAM = (
    START
    + """
import time
ptx = b'''//softgpu entry=work time_ns=%d000000
.version 8.0
.target sm_80
.address_size 64
.visible .entry work() { ret; }
\\0'''
work = must(cu.cuModuleGetFunction(must(cu.cuModuleLoadData(ptx)), b"work"))
config = cu.CUlaunchConfig()
config.gridDimX = config.gridDimY = config.gridDimZ = 1
config.blockDimX = config.blockDimY = config.blockDimZ = 1
began, launches = time.monotonic(), 0
while time.monotonic() - began < %s:
    must(%s)
    must(cu.cuCtxSynchronize())
    launches += 1
print(json.dumps(launches * %d / 1e3 / (time.monotonic() - began)))
"""
)


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_kernel_is_paced_whatever_launches_it(host, new_guest, tmp_path, name):
    guest = new_guest(share(host.uuids[0], GIB, 30))
    program = PROGRAM % (KERNEL_MS, SECONDS, LAUNCHES[name], KERNEL_MS)
    (found,) = together(tmp_path, (guest, [PYTHON, "-c", program]))
    assert found == pytest.approx(0.30, abs=0.02)
