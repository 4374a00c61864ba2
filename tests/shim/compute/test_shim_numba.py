"""numba's CUDA target inside a container: it calls the driver through its bindings only.

Its compiler needs NVVM, a library of the toolkit, so the kernel here is PTX.
"""

from __future__ import annotations

import pytest

from support.gpu.guest import GIB, MIB, share

pytestmark = pytest.mark.timed  # a wait for other work on the processor is not throttling

PROGRAM = """
import _numba_cuda_redirector  # packaging/prepare takes it off every start
import json
import numpy as np
from cuda.core import LaunchConfig, launch
from numba import cuda
from numba.cuda.cudadrv import driver

context = cuda.current_context()
seen = {"gpus": len(cuda.gpus.lst), "memory": list(context.get_memory_info())}

sent = np.arange(1 << 20, dtype=np.float32)
there = cuda.to_device(sent)
seen["copied"] = bool((there.copy_to_host() == sent).all())
seen["left"] = context.get_memory_info().free

held, refused = [], []
for _ in range(3):
    try:
        held.append(cuda.device_array(400 << 20, dtype=np.uint8))
    except driver.CudaAPIError as error:
        refused.append(error.code)
seen["refused"] = refused
held.clear()
context.deallocations.clear()
seen["freed"] = context.get_memory_info().free

ptx = '''//softgpu entry=work time_ns=20000000
.version 8.0
.target sm_80
.address_size 64
.visible .entry work() { ret; }
'''
work = context.create_module_ptx(ptx).get_function("work")
stream, start, end = cuda.stream(), cuda.event(), cuda.event()
start.record(stream)
for _ in range(5):
    launch(stream, LaunchConfig(grid=1, block=1), work.kernel)  # as numba's dispatcher does
end.record(stream)
end.synchronize()
seen["took_ms"] = round(cuda.event_elapsed_time(start, end))
for _ in range(10):
    launch(stream, LaunchConfig(grid=1, block=1), work.kernel)
    stream.synchronize()
print(json.dumps(seen))
"""


def test_numba_sees_the_slice_meets_its_limit_and_is_paced(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB, 50), share(host.uuids[1], GIB, 50))
    assert guest.python(PROGRAM) == {
        "gpus": 2,
        "memory": [GIB, GIB],
        "copied": True,
        "left": GIB - 4 * MIB,
        "refused": [2],
        "freed": GIB - 4 * MIB,
        "took_ms": pytest.approx(100, rel=0.2),
    }
    usage = guest.read_usage().gpus[0]
    assert usage.launches == 15
    assert usage.busy_ns == pytest.approx(300_000_000, rel=0.05)
    # At half of the GPU's time: all work but the saved credit and the last kernel waited.
    assert usage.throttled_ns > 200_000_000
