"""Sample the GPU's account and the containers' pages at moments of a virtual clock.

usage: sampler.py SOFTGPU ROOT CLOCK MOMENTS LIMITS-PAGE...

A process of the clock's group. It sleeps until each of the MOMENTS, seconds from its start with
commas between, and prints a JSON list of samples. While it reads, the virtual time stands still.

It runs by `python -S` and imports little: each run of the judge starts it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time

from vcuda_oci.pages import page_reader

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

    def _call(self, name: str, *values: object) -> None:
        result = self.nvml[name](*values)
        if result:
            raise OSError(f"{name}: NVML error {result}")

    def read(self) -> tuple[int, str]:
        """The moment in nanoseconds, and the account as JSON text."""
        self._call("nvmlDeviceGetUtilizationRates", self.device, (ctypes.c_uint * 2)())
        now_ns = time.monotonic_ns()
        read, write = os.pipe()
        files = [(os.POSIX_SPAWN_DUP2, write, 1)]
        child = os.posix_spawn(self.command[0], self.command, OUTSIDE, file_actions=files)
        os.close(write)
        with os.fdopen(read) as file:
            text = file.read()
        if os.waitpid(child, 0)[1]:
            raise OSError(f"{self.command} failed")
        return now_ns, text


def page(path: str) -> str:
    with open(path, "rb") as file:
        gpu = page_reader.read_limits(file.read()).gpus[0]
    held_ns, waited_ns, words = gpu.turn_held_ns, gpu.turn_waited_ns, gpu.turn >> 2
    return f'{{"held_ns": {held_ns}, "waited_ns": {waited_ns}, "words": {words}}}'


# struct softclock and struct thread_slot in libvcuda/softgpu/clock/slots.h
HEAD, SLOT = struct.Struct("=4IQ"), struct.Struct("=2IQ2I28Q")


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
    for moment in moments.split(","):
        time.sleep(max(0.0, begun + float(moment) - time.monotonic()))
        now = time.monotonic()
        at_ns, account = gpu.read()
        samples.append(
            f'{{"now": {now!r}, "account_ns": {at_ns}, "account": {account},'
            f' "pages": [{", ".join(page(path) for path in pages)}], "wakes": {wakes(clock)}}}'
        )
    print(f"[{', '.join(samples)}]")


if __name__ == "__main__":
    main(*sys.argv[1:])
