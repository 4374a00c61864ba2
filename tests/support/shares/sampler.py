"""Sample the GPU's account and the containers' pages at moments of a virtual clock.

usage: sampler.py SOFTGPU ROOT CLOCK MOMENTS LIMITS-PAGE...

A process of the clock's group. It sleeps until each of the MOMENTS, a JSON list of seconds from
its start, and prints a JSON list of samples. While it reads, the virtual time stands still.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
import time
from typing import Any

from vcuda_oci.pages import page_reader

MOST_LATE_NS = 100_000

# The child must not take part in the clock's group.
OUTSIDE = {key: value for key, value in os.environ.items() if "SOFTCLOCK" not in key}
OUTSIDE.pop("LD_PRELOAD", None)


class Account:
    """The GPU's account at this moment. Its clock stands still while no process uses the GPU, so a
    query through NVML advances it first, in virtual time."""

    def __init__(self, softgpu: str, root: str) -> None:
        self.command = [softgpu, "time", root, "--json", "--as-is"]
        folder = os.path.join(root, "usr", "lib", "x86_64-linux-gnu")
        self.nvml = ctypes.CDLL(os.path.join(folder, "libnvidia-ml.so.1"))
        self.device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self.device))

    def _call(self, name: str, *values: Any) -> None:
        result = self.nvml[name](*values)
        if result:
            raise OSError(f"{name}: NVML error {result}")

    def read(self) -> Any:
        self._call("nvmlDeviceGetUtilizationRates", self.device, (ctypes.c_uint * 2)())
        now_ns = time.monotonic_ns()
        done = subprocess.run(self.command, env=OUTSIDE, check=True, stdout=subprocess.PIPE)
        gpus = json.loads(done.stdout)["gpus"]
        late_ns = now_ns - gpus[0]["clock_ns"]
        if not 0 <= late_ns < MOST_LATE_NS:
            raise ValueError(f"the GPU's account is {late_ns} ns older than its sample")
        return gpus


def page(path: str) -> Any:
    with open(path, "rb") as file:
        gpu = page_reader.read_limits(file.read()).gpus[0]
    return {"held_ns": gpu.turn_held_ns, "waited_ns": gpu.turn_waited_ns, "words": gpu.turn >> 2}


# struct softclock and struct thread_slot in libvcuda/softgpu/clock/slots.h
HEAD, SLOT = struct.Struct("=4IQ"), struct.Struct("=2IQ2I")


def wakes(clock: str) -> int:
    """How often threads beside each process's first one have run: the keeper's, one of each GPU."""
    with open(clock, "rb") as file:
        state = file.read()
    processes, _, _, used, _ = HEAD.unpack_from(state)
    return sum(
        SLOT.unpack_from(state, HEAD.size + number * SLOT.size)[0]
        for number in range(processes, used)
    )


def main(softgpu: str, root: str, clock: str, moments: str, *pages: str) -> None:
    begun = time.monotonic()
    samples = []
    gpu = Account(softgpu, root)
    for moment in json.loads(moments):
        time.sleep(max(0.0, begun + moment - time.monotonic()))
        samples.append(
            {
                "now": time.monotonic(),
                "gpus": gpu.read(),
                "pages": [page(path) for path in pages],
                "wakes": wakes(clock),
            }
        )
    print(json.dumps(samples))


if __name__ == "__main__":
    main(*sys.argv[1:])
