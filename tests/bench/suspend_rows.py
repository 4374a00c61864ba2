"""Suspended containers of real runc on software GPUs with a copy rate: how long each verb takes.

link      16 GiB off the GPU and back by `vcuda`, from the command's start to its end
eviction  a notebook's first call after the agent has evicted 4 GiB
rotation  two containers of 0.7 of the memory each, always at work, and in turn with host work
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

from bench import shim
from bench.result import Figure
from bench.starts.ctr import files_in
from shim.conftest import MOCK_UUID
from support.engines.base import Engine
from support.engines.low_level import RuncV2
from support.gpu import guest
from support.host import own_run
from support.product import SOFTGPU, Product, asking
from support.suspend.notebook import agent, cells, kinds, state
from support.waiting import until

GIB = 1 << 30
RATE = 25_000_000_000  # bytes a second, each way
LINK_BYTES, EVICTED_BYTES = 16 * GIB, 4 * GIB
LARGE, SMALL = "20GiB", "8GiB"
SHARE = 8 * GIB * 7 // 10
LINK_ROUNDS, EVICTIONS = 9, 9
# A cell computes so long on the GPU, and then so long on the host.
CELLS, CELL_SECONDS = 5, 4.0
ROTATION_SECONDS = 60
QUANTUM = "measured"
GATE_ROUNDS, GATED = 5, ("cuLaunchKernel", "cuLaunchKernel/2", "cuMemcpyDtoDAsync")
_KERNEL_US = 20_000
Say = Callable[[str], None]


def measure(say: Say) -> list[Figure]:
    """Raises AssertionError, RuntimeError: a container did not do what it should."""
    found: list[Figure] = []
    with _engine() as (engine, folder):
        rates = [f"--{way}-rate={RATE}/s" for way in ("checkpoint", "restore")]
        large = Product(folder + "/large", 1, "--memory", LARGE, *rates)
        small = Product(folder + "/small", 1, "--memory", SMALL, *rates)
        with large.on(engine):
            found += link(engine, large, say)
        with large.on(engine), agent(engine, large):
            found += eviction(engine, large, say)
        settings = {"memory_overcommit": "2", "oversubscribe": "rotate"}
        settings["rotation_quantum"] = QUANTUM
        with small.on(engine, **settings), agent(engine, small):
            found += rotation(engine, small, say)
            found += alternation(engine, small, say)
    return found + gate(say)


@contextlib.contextmanager
def _engine() -> Iterator[tuple[Engine, str]]:
    with contextlib.ExitStack() as stack:
        own_run.sweep()
        folder = own_run.scratch_folder()
        stack.callback(shutil.rmtree, folder)
        engine = RuncV2(files_in(folder, {"/usr/bin/vcuda-workload": guest.WORKLOAD}))
        stack.callback(engine.close)
        yield engine, folder


@contextlib.contextmanager
def _running(engine: Engine, name: str, words: list[str], **more: object) -> Iterator[None]:
    asked = asking(engine, **{"core": 50, "gpu": "0", "policy": "elastic", **more})  # type: ignore[arg-type]
    try:
        started = engine.start(name, ["vcuda-workload", *words], **asked)
        assert started.rc == 0, started.stderr
        yield
    finally:
        engine.delete(name)


def link(engine: Engine, product: Product, say: Say) -> list[Figure]:
    """Per cent of the link's rate, of the whole command."""
    seconds: dict[str, list[float]] = {"suspend": [], "resume": []}
    words = ["hold", f"--bytes={LINK_BYTES}", "--seconds=3600"]
    with _running(engine, "link", words, memory_bytes=LINK_BYTES + GIB):
        until(lambda: bool(engine.logs("link")))
        for number in range(LINK_ROUNDS):
            for verb, took in seconds.items():
                took.append(_vcuda(engine, product, verb, "link"))
            say(f"16 GiB: round {number + 1} of {LINK_ROUNDS}")
    figures = []
    for verb, took in seconds.items():
        rate = LINK_BYTES / statistics.median(took) / RATE
        note = f"{statistics.median(took):.3f} s for {LINK_BYTES / RATE:.3f} s, virtual memory"
        name = f"{verb} 16 GiB at 25 GB/s"
        figures.append(Figure(name, 100 * rate, "% of its rate", 80, {}, note, is_least=True))
    return figures


def eviction(engine: Engine, product: Product, say: Say) -> list[Figure]:
    """Milliseconds of a first call beyond the copy."""
    words = ["notebook", f"--bytes={EVICTED_BYTES}", "--seconds=3600", "--every-ms=6000"]
    asked = {"memory_bytes": EVICTED_BYTES + GIB, "idle_suspend": "1s"}
    with _running(engine, "idle", words, **asked):
        until(
            lambda: kinds(engine, product).count("resumed") >= EVICTIONS, seconds=30.0 * EVICTIONS
        )
        until(lambda: state(engine, product)[0] == "suspended")
        found = [cell["first_call_ms"] for cell in cells(engine, "idle")[1:]]
    say(f"first calls after an eviction: {found} ms")
    copy = EVICTED_BYTES / RATE * 1e3
    calls = [ms for ms in found if ms > copy]
    note = f"{len(calls)} calls, the longest {max(calls) - copy:.0f}; its copy takes {copy:.0f} ms"
    value = statistics.median(calls) - copy
    return [Figure("first call after evicting 4 GiB", value, "ms + copy", 200, {}, note)]


def rotation(engine: Engine, product: Product, say: Say) -> list[Figure]:
    """Per cent of the GPU's time that is lost beside one such container alone.

    Alone is measured before and after: what a load of the processors costs without any swap, of the
    launches and of the software GPU, is then no loss.
    """
    words = ["busy", f"--allocate={SHARE}", f"--kernel-us={_KERNEL_US}", "--async=4"]
    words.append("--seconds=3600")
    with _running(engine, "alone", words, memory_bytes=SHARE):
        time.sleep(5)
        before = _busy_share(product, ROTATION_SECONDS / 3)
        with _running(engine, "other", words, memory_bytes=SHARE):
            until(lambda: kinds(engine, product).count("resumed") >= 2, seconds=300)
            seen = len(kinds(engine, product))
            both = _busy_share(product, ROTATION_SECONDS)
            swaps = kinds(engine, product)[seen:].count("resumed")
        until(lambda: state(engine, product)[0] == "running", seconds=60)
        time.sleep(1)
        after = _busy_share(product, ROTATION_SECONDS / 3)
    alone = (before + after) / 2
    say(f"busy alone {before:.4f}, then {after:.4f}; in turns {both:.4f}, {swaps} swaps")
    note = f"{swaps} swaps in {ROTATION_SECONDS} s; the GPU is busy {100 * alone:.1f} % alone"
    return [Figure("rotation lost to swapping", 100 * (1 - both / alone), "%", 10, {}, note)]


def alternation(engine: Engine, product: Product, say: Say) -> list[Figure]:
    """How much sooner two containers end that each use the GPU half of the time."""
    kernels = int(CELL_SECONDS * 1e6) // _KERNEL_US
    words = ["notebook", f"--bytes={SHARE}", f"--cells={CELLS}", "--seconds=3600"]
    words += [f"--kernels={kernels}", f"--kernel-us={_KERNEL_US}"]
    words.append(f"--every-ms={int(CELL_SECONDS * 1e3)}")

    def is_done(name: str) -> bool:
        return len(cells(engine, name)) == CELLS

    def seconds(names: tuple[str, ...]) -> float:
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(_running(engine, name, words, memory_bytes=SHARE))
            for name in names:
                until(functools.partial(is_done, name), seconds=60 * CELLS * CELL_SECONDS)
                assert engine.wait(name) == 0, engine.logs(name)
            return time.monotonic() - begun

    one_by_one = seconds(("first",)) + seconds(("second",))
    together = seconds(("first", "second"))
    say(f"one after the other {one_by_one:.1f} s, together {together:.1f} s")
    note = f"{CELLS} cells of {CELL_SECONDS:g} s on the GPU, {CELL_SECONDS:g} s on the host between"
    value = one_by_one / together
    return [Figure("0.7 + 0.7 of memory, alternating", value, "x", 1.35, {}, note, is_least=True)]


def gate(say: Say) -> list[Figure]:
    """Nanoseconds that a call takes more with `calls_ask`, over a driver that does nothing."""
    with tempfile.TemporaryDirectory(prefix="vb", dir="/dev/shm") as folder:
        client, mock = shim.compiled(folder), shim.mock_driver(folder + "/mock")
        ways = {
            asks: guest.Guest(f"{folder}/{asks}", mock, [shim.share(MOCK_UUID)], calls_ask=asks)
            for asks in (False, True)
        }
        rounds: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for number in range(GATE_ROUNDS):
            say(f"gate: round {number + 1} of {GATE_ROUNDS}")
            for asks, way in ways.items():
                rounds[asks].append(json.loads(way.run(client)))
    return [
        Figure(f"gate of {call}", value, "ns added", None, {})
        for call in GATED
        for value in [shim.median_of(rounds[True], call) - shim.median_of(rounds[False], call)]
    ]


def _busy_share(product: Product, seconds: float) -> float:
    """The part of the GPU's time in which a kernel runs."""
    first = _account(product)
    time.sleep(seconds)
    last = _account(product)
    return (last["busy_ns"] - first["busy_ns"]) / (last["clock_ns"] - first["clock_ns"])


def _account(product: Product) -> dict[str, int]:
    with os.popen(f"{SOFTGPU} time {product.driver_root} --json") as out:
        (gpu,) = json.load(out)["gpus"]
    found: dict[str, int] = gpu
    return found


def _vcuda(engine: Engine, product: Product, verb: str, name: str) -> float:
    """Seconds of a whole command. Raises RuntimeError: it failed."""
    begun = time.monotonic()
    out = engine.host.check([product.prefix + "/bin/vcuda", "--config", product.config, verb, name])
    took = time.monotonic() - begun
    assert re.search(r"16 GiB (off|back on) the GPU", out), out
    return took
