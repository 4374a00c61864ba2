"""Questions of memory: where the limit is, what NVML says of it, what a context takes."""

from __future__ import annotations

from bench.result import Figure
from gpu.machine import Machine, UnmeasuredError, answer, wait_until_ready
from shim.guest import MIB, WORKLOAD

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


def held_by(machine: Machine, bytes_held: int) -> int:
    """What NVML says, from outside, of a process that holds BYTES_HELD in a container."""
    container = machine.container()
    process = machine.start_in(
        container, WORKLOAD, "hold", "--bytes", str(bytes_held), "--seconds", "60"
    )
    try:
        wait_until_ready(process)
        found = machine.nvml()["processes"].get(str(process.pid))
    finally:
        process.kill()
        process.communicate()
    if found is None:
        raise UnmeasuredError("NVML lists no processes of this pid namespace")
    return int(found)


def context(machine: Machine) -> list[Figure]:
    return [Figure("memory.context", held_by(machine, 0) / MIB, "MiB", None, {})]


def nvml(machine: Machine) -> list[Figure]:
    """Held with an allocation, less held without: against what the slice is charged."""
    difference = held_by(machine, HELD) - held_by(machine, 0) - HELD
    return [Figure("memory.nvml off by", abs(difference), "bytes", GRANULE, {})]
