"""The loads that shares are judged with, as options of `vcuda-workload busy`."""

from __future__ import annotations

import dataclasses

FILLING_BLOCKS = 264  # of 1,024 threads, on the software GPU
# What a loop takes of the host between the end of a kernel and the start of the next one, without a
# gap of its own: a submission of 2 us, and readings of the virtual clock.
SUBMIT_S = 2.4e-6


@dataclasses.dataclass(frozen=True)
class Load:
    """`ahead`: submissions in flight; 0: each is waited for."""

    name: str
    kernel_us: int
    ahead: int = 0
    gap_us: int = 0
    first_us: int = 0
    graph: int = 0
    streams: int = 0
    blocks: int = 0
    copy: str = ""
    every_ms: int = 0
    threads: int = 0

    @property
    def longest_s(self) -> float:
        """The longest time that the driver alone cannot cut without preemption."""
        return self.kernel_us / 1e6

    def options(self) -> list[str]:
        words = ["--kernel-us", str(self.kernel_us), "--async", str(self.ahead)]
        for name, value in [
            ("gap-us", self.gap_us),
            ("first-us", self.first_us),
            ("graph", self.graph),
            ("streams", self.streams),
            ("blocks", self.blocks),
            ("copy", self.copy),
            ("every-ms", self.every_ms),
            ("threads", self.threads),
        ]:
            words += [f"--{name}", str(value)] if value else []
        return words

    def gap_s(self, waits: int, slept_s: float) -> float:
        """How long the load left the GPU idle: `slept_s` by its own choice, in `waits` waits."""
        return 0.0 if self.ahead > 1 else slept_s + waits * SUBMIT_S

    def in_threads(self, threads: int, streams: int) -> Load:
        """The same in threads that have so many streams each; all kernels run at once."""
        load = self.on_streams(threads * streams)
        name = f"{self.name}, {threads} threads of {streams} streams"
        return dataclasses.replace(load, name=name, streams=streams, threads=threads)

    def on_streams(self, count: int) -> Load:
        """The same on `count` streams; their kernels run at once."""
        if count == 1:
            return self
        name = f"{self.name}, {count} streams"
        blocks = min(self.blocks or FILLING_BLOCKS, FILLING_BLOCKS // count)
        return dataclasses.replace(self, name=name, streams=count, blocks=blocks)


# A launch takes longer than the kernel, so the GPU waits for the program.
LAUNCH_BOUND = Load("3 us ahead", 3, ahead=64)
AHEAD = Load("50 us ahead", 50, ahead=64)
WAITED = Load("50 us waited", 50, gap_us=20)
MS_5 = Load("5 ms waited", 5_000)
MS_25 = Load("25 ms waited", 25_000)
MS_300 = Load("300 ms waited", 300_000)
GRAPHS = Load("graphs of 100", 50, ahead=2, graph=100)
ONE_BLOCK = Load("one block", 50, ahead=64, blocks=1)
# 16 KiB at a bus rate of 1 GiB/s take 15 us.
COPIES = Load("copies beside", 50, ahead=64, copy="16KiB")
MS_1 = Load("1 ms ahead", 1_000, ahead=16)
# Beside it the GPU has hardly any work: a copy that is charged shows as fewer loops.
LONG_COPY = Load("20 us beside a copy of 40 ms", 20, copy="40MiB")


def with_gaps(gap_us: int) -> Load:
    return Load(f"1 ms, gap {gap_us / 1_000:g} ms", 1_000, gap_us=gap_us)


REQUESTS = Load("1 ms every 50 ms", 1_000, every_ms=50)
# It works once, and sleeps for longer than any window.
IDLE = Load("idle", 50, gap_us=90_000_000)
PAIRED = [AHEAD, WAITED, MS_5, MS_25, MS_300, GRAPHS, ONE_BLOCK, COPIES]
