"""Questions of memory: where the limit is, what NVML says of it, what a context takes, and whether
modules and limits take what they are charged."""

from __future__ import annotations

import sys
from typing import NamedTuple

from bench.result import Figure
from gpu.machine import Machine, UnmeasuredError, answer, wait_until_ready
from support.gpu.guest import MIB, WORKLOAD

GRANULE = 2 * MIB  # what a driver's allocations are rounded up to
SLICE = 512 * MIB
HELD = 256 * MIB


def limit(machine: Machine) -> list[Figure]:
    """Everything is allocated that the slice gives, down to single bytes."""
    container = machine.container(memory_bytes=SLICE)
    got = answer(machine.start_in(container, WORKLOAD, "alloc", "--chunk", "32MiB"))
    if got["error"] != "CUDA_ERROR_OUT_OF_MEMORY":
        raise UnmeasuredError(f"the allocations ended with {got['error']}")
    above = got["exact_bytes"] - SLICE
    return [
        Figure("memory.limit above", max(above, 0), "bytes", 0, {}),
        Figure("memory.limit below", max(-above, 0), "bytes", GRANULE - 1, {}),
    ]


# What a process does that no allocation names. The driver's own linker makes compiled code of PTX.
TAKE = """
import sys, time
from cuda.bindings import driver as cu
def must(answer):
    if answer[0]:
        sys.exit(answer[0].name)
    return answer[1] if len(answer) == 2 else answer[1:]
must(cu.cuInit(0))
must(cu.cuCtxSetCurrent(must(cu.cuDevicePrimaryCtxRetain(0))))
if sys.argv[1] == "limits":
    limits = cu.CUlimit
    must(cu.cuCtxSetLimit(limits.CU_LIMIT_STACK_SIZE, 4 << 10))
    must(cu.cuCtxSetLimit(limits.CU_LIMIT_PRINTF_FIFO_SIZE, 32 << 20))
    must(cu.cuCtxSetLimit(limits.CU_LIMIT_MALLOC_HEAP_SIZE, 64 << 20))
if sys.argv[1] == "modules":
    ptx = (b".version 7.0\\n.target sm_50\\n.address_size 64\\n"
           b".visible .global .align 8 .b8 buffer[100000000];\\n"
           b".visible .entry work() { .reg .u64 %r; mov.u64 %r, buffer; st.global.u64 [%r], %r;"
           b" ret; }\\n\\0")
    linker = must(cu.cuLinkCreate(0, [], []))
    kind = cu.CUjitInputType.CU_JIT_INPUT_PTX
    must(cu.cuLinkAddData(linker, kind, ptx, len(ptx), b"work", 0, [], []))
    cubin, bytes = must(cu.cuLinkComplete(linker))
    must(cu.cuModuleGetFunction(must(cu.cuModuleLoadData(cubin)), b"work"))
print("ready", flush=True)
time.sleep(60)
"""


class Held(NamedTuple):
    nvml: int  # bytes that NVML says of the process, from outside
    charged: int


def held_by(machine: Machine, *command: str) -> Held:
    """Of COMMAND in a container, once it is ready."""
    container = machine.container()
    process = machine.start_in(container, *command)
    try:
        wait_until_ready(process)
        found = machine.nvml()["processes"].get(str(process.pid))
        charged = sum(sum(each.held_bytes) for each in container.read_usage().processes)
    finally:
        process.kill()
        process.communicate()
    if found is None:
        raise UnmeasuredError("NVML lists no processes of this pid namespace")
    return Held(int(found), charged)


def with_an_allocation(machine: Machine, bytes_held: int) -> int:
    """What NVML says of a process that allocated BYTES_HELD."""
    hold = (WORKLOAD, "hold", "--bytes", str(bytes_held), "--seconds", "60")
    return held_by(machine, *hold).nvml


def taken_above_charge(machine: Machine, what: str) -> int:
    """How many bytes more than it is charged a process takes for WHAT, one of TAKE's words."""
    without, beside = (held_by(machine, sys.executable, "-c", TAKE, w) for w in ("none", what))
    return (beside.nvml - without.nvml) - (beside.charged - without.charged)


def context(machine: Machine) -> list[Figure]:
    return [Figure("memory.context", with_an_allocation(machine, 0) / MIB, "MiB", None, {})]


def nvml(machine: Machine) -> list[Figure]:
    """Held with an allocation, less held without: against what the slice is charged."""
    difference = with_an_allocation(machine, HELD) - with_an_allocation(machine, 0) - HELD
    return [Figure("memory.nvml off by", abs(difference), "bytes", GRANULE, {})]


def limits(machine: Machine) -> list[Figure]:
    above = taken_above_charge(machine, "limits")
    return [Figure("memory.stack above the charge", above, "bytes", None, {})]


def modules(machine: Machine) -> list[Figure]:
    above = taken_above_charge(machine, "modules")
    return [Figure("memory.module above the charge", above, "bytes", None, {})]
