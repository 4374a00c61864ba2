"""What a container's start costs through the wrapper, as a multiple of plain runc.

Every round runs each way once, in random order; only ratios within a round mean anything.
Bundles and records are on a tmpfs, where engines keep them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

from bench.result import Figure
from support.bundle import rootfs
from support.files import ROOT

ROUNDS = 100
# Between one container's end and the next start, at random, so that ticks of 4 ms favour no way. A
# write to cgroup.procs (v1) waits for a grace period of RCU, 4 to 8 ms, unless another write was
# just before it, as the former container's end: back to back a start is the shorter the earlier it
# writes, and a plain one writes first.
PAUSE_SECONDS = (0.05, 0.062)
RUNC = "/usr/sbin/runc"
SOFTGPU = ROOT + "/build/softgpu/softgpu"
Spec = dict[str, object]


def measure(say: Callable[[str], None]) -> list[Figure]:
    """Raises RuntimeError: a container did not start, or left something behind."""
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="vb", dir="/dev/shm")
        stack.callback(shutil.rmtree, folder)
        say("installing into two private prefixes")
        awake, asleep = folder + "/awake", folder + "/asleep"
        for prefix in (awake, asleep):
            install(prefix)
            stack.callback(subprocess.run, [SOFTGPU, "destroy", prefix + "/driver"], check=True)
        serve(awake, stack)
        bench = Bench(folder)
        runtime = "/usr/bin/vcuda-container-runtime"
        ways = {
            "plain": (RUNC, bench.plain),
            "no_share": (asleep + runtime, bench.plain),
            "share": (asleep + runtime, bench.share),
            "share_with_agent": (awake + runtime, bench.share),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for number in range(ROUNDS + 3):
            for name in random.sample(list(ways), len(ways)):
                once = bench.once(*ways[name], f"{name}{number}")
                if number >= 3:  # the first rounds warm caches
                    times[name].append(once)
            if number % 10 == 0:
                say(f"round {number} of {ROUNDS}")
        for prefix in (awake, asleep):
            _check_nothing_left(prefix)
    return _figures(times)


def _figures(times: dict[str, list[tuple[float, float]]]) -> list[Figure]:
    plain = times["plain"]

    def ratio(name: str) -> float:
        """Of the starts of one round, which lie within a tenth of a second; then the median."""
        return statistics.median(one[0] / base[0] for one, base in zip(times[name], plain))

    def added(name: str, part: int = 0) -> float:
        """Milliseconds of a start, or of the whole life, beyond plain's of the same round."""
        return (
            statistics.median(one[part] - base[part] for one, base in zip(times[name], plain)) * 1e3
        )

    plain_ms = statistics.median(start for start, _ in plain) * 1e3
    nvidia = {"NVIDIA no device": 1.34}
    shared = {"NVIDIA CDI": 1.60, "NVIDIA CDI + hooks": 2.48}
    return [
        Figure("start.plain_runc", plain_ms, "ms", None, {}),
        Figure("start.no_share", ratio("no_share"), "x plain", 1.03, nvidia),
        Figure("start.share_with_agent", ratio("share_with_agent"), "x plain", 1.12, shared),
        Figure("start.share_without_agent", ratio("share"), "x plain", 1.60, shared),
        # 0.12 of the 22.5 ms that plain runc took back to back where the goal was set.
        Figure("start.share_with_agent_added", added("share_with_agent"), "ms", 2.7, {}),
        Figure("start.no_share_whole_life", added("no_share", 1), "ms added", 2, {}),
    ]


class Bench:
    """Bundles of one container that asks for nothing and one that asks for a share."""

    def __init__(self, folder: str) -> None:
        self.folder, self.bundle = folder, folder + "/bundle"
        rootfs.build(self.bundle + "/rootfs")
        subprocess.run([RUNC, "spec", "-b", self.bundle], check=True)
        with open(self.bundle + "/config.json") as file:
            spec: Spec = json.load(file)
        process = spec["process"]
        assert isinstance(process, dict)
        process.update(terminal=False, args=["/bin/true"])
        process.pop("rlimits", None)
        spec["root"] = {"path": "rootfs", "readonly": False}
        self.plain = json.dumps(spec)
        annotations = {"vcuda.io/core": "30", "vcuda.io/memory": "1GiB"}
        self.share = json.dumps({**spec, "annotations": annotations})

    def once(self, runtime: str, config: str, id: str) -> tuple[float, float]:
        """Seconds of create + start, and of the whole life, of one container."""
        with open(self.bundle + "/config.json", "w") as file:
            file.write(config)
        time.sleep(random.uniform(*PAUSE_SECONDS))
        begin = time.perf_counter()
        self._call(runtime, "create", "--bundle", self.bundle, id)
        self._call(runtime, "start", id)
        started = time.perf_counter() - begin
        deadline = time.monotonic() + 10
        while self._status(id) != "stopped":
            if time.monotonic() > deadline:
                raise RuntimeError(f"container {id} did not end")
            time.sleep(0.002)
        again = time.perf_counter()
        for _ in range(4):
            self._call(runtime, "state", id)
        self._call(runtime, "delete", id)
        return started, started + time.perf_counter() - again

    def begin(self, runtime: str, config: str, id: str) -> int:
        """Create and start a container that goes on; the pid of its first process."""
        with open(self.bundle + "/config.json", "w") as file:
            file.write(config)
        self._call(runtime, "create", "--bundle", self.bundle, id)
        self._call(runtime, "start", id)
        return int(self._state(id)["pid"])

    def end(self, runtime: str, id: str) -> None:
        self._call(runtime, "delete", "--force", id)

    def _status(self, id: str) -> str:
        return str(self._state(id)["status"])

    def _state(self, id: str) -> dict[str, Any]:
        done = subprocess.run(
            [RUNC, "--root", self.folder + "/runc", "state", id], check=True, capture_output=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _call(self, runtime: str, *words: str) -> None:
        # The container inherits the output: a pipe would stay open until the container ends.
        with open(self.folder + "/errors", "w+") as errors:
            done = subprocess.run(
                [runtime, "--root", self.folder + "/runc", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                check=False,
            )
            if done.returncode != 0:
                errors.seek(0)
                raise RuntimeError(f"{runtime} {' '.join(words)}: {errors.read()}")


def serve(prefix: str, stack: contextlib.ExitStack) -> None:
    """The claim socket, open until the end."""
    server = subprocess.Popen([prefix + "/usr/bin/vcuda", "serve"])
    stack.callback(server.wait)
    stack.callback(server.terminate)
    deadline = time.monotonic() + 10
    while not os.path.exists(prefix + "/state/door.sock"):
        if time.monotonic() > deadline:
            raise RuntimeError("vcuda serve opened no claim socket")
        time.sleep(0.01)


def _check_nothing_left(prefix: str) -> None:
    left = os.listdir(prefix + "/state/allocations")
    if left:
        raise RuntimeError(f"left in the ledger: {left}")


def install(folder: str, *options: str) -> None:
    """Install the product and a driver root; options: of `softgpu create`."""
    subprocess.run([ROOT + "/packaging/install", folder + "/usr", folder + "/etc"], check=True)
    create = [SOFTGPU, "create", folder + "/driver", *options]
    subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
    # After the comments that come with the packages: they are read at each start too.
    with open(folder + "/etc/vcuda/config.toml", "a") as file:
        file.write(f'runtime = "{RUNC}"\nstate-dir = "{folder}/state"\n')
        file.write(f'driver-root = "{folder}/driver"\n')
