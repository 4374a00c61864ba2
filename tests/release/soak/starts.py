"""Container lives on one low-level runtime: plain, through the wrapper, and with the claim server.

Every way has settings and records of its own; a plain start is the measure of the machine's mood.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from release.soak import traces
from support.agent.claim_server import ClaimServer, Use
from support.bundle import spec
from support.engines.base import Wanted
from support.engines.low_level import LowLevel
from support.product import MIB, Product
from support.waiting import until
from vcuda_oci.start import claim_socket

PLAIN, WITHOUT_SERVER, WITH_SERVER = "plain", "without_server", "with_server"
SHARE = {"vcuda.io/core": "30", "vcuda.io/memory": str(1024 * MIB)}
# A worker's memory grows by more when it first writes to what it shared with the server.
FIRST_CLAIM_BYTES = 512 << 10
MOST_WARM_UP = 100
Say = Callable[[str], None]
# By way: seconds of create + start, one a round; a round without a plain start has none at all.
Times = dict[str, list[float]]


class Starts:
    """A host with two installations before its low-level runtime: one has a claim server."""

    def __init__(self, engine: LowLevel, with_server: Product, without_server: Product) -> None:
        self.engine = engine
        self.runtimes = {PLAIN: engine.plain_runtime()}
        for way, product in ((WITH_SERVER, with_server), (WITHOUT_SERVER, without_server)):
            self.runtimes[way] = product.runtime
            product.configure(engine, state_dir=self.state_dir(way))
        self.server = ClaimServer(engine.host, with_server, self.state_dir(WITH_SERVER))
        self.bundle = engine.make_bundle(Wanted("soak", ["/bin/true"]))
        self._serial = 0
        self._fresh = self.server.use()

    def warm_up(self) -> None:
        """Start containers until each claim worker has met one. Raises RuntimeError."""
        try:
            for _ in range(MOST_WARM_UP):
                self.round(PLAIN, WITHOUT_SERVER, WITH_SERVER)
                use = self.server.use()
                grown = [pid for pid in use if self._growth(pid, use[pid]) > FIRST_CLAIM_BYTES]
                if len(grown) >= claim_socket.WORKERS:
                    return
                for pid in grown:
                    os.kill(pid, signal.SIGSTOP)  # the same worker would meet the next one too
        finally:
            for pid in self._fresh:
                os.kill(pid, signal.SIGCONT)
        raise RuntimeError(f"a worker of the claim server meets no container: {use}")

    def _growth(self, pid: int, use: Use) -> int:
        return use.resident_bytes - self._fresh[pid].resident_bytes

    def rest(self) -> None:
        """Wait for the page keeper, which removes the page of an ended container a moment later."""
        folder = f"/proc/{self.engine.host.pid}/root{self.state_dir(WITH_SERVER)}/ended"
        until(lambda: os.listdir(folder) == [], "the end of every page")

    def close(self) -> None:
        self.server.close()
        self.engine.delete("soak")

    def state_dir(self, way: str) -> str:
        return self.engine.host.path(way)

    def round(self, *ways: str) -> dict[str, float]:
        """One life each, in random order."""
        return {way: self._life(way) for way in random.sample(ways, len(ways))}

    def _life(self, way: str) -> float:
        """Seconds of create + start. Raises RuntimeError: the container did not start or end."""
        self._serial += 1
        id = f"{way}-{self._serial}"
        group = f"{self.engine.host.cgroup_parent}/{id}"
        asked = {} if way == PLAIN else SHARE
        config = spec.plain(["/bin/true"], cgroups_path=group, annotations=asked)
        with open(self.bundle + "/config.json", "w") as file:
            json.dump(config, file)
        begin = time.perf_counter()
        pid_file = self.bundle + "/pid"
        self._call(way, "create", "--bundle", self.bundle, "--pid-file", pid_file, id)
        self._call(way, "start", id)
        seconds = time.perf_counter() - begin
        with open(pid_file) as pid:
            process = f"/proc/{self.engine.host.pid}/root/proc/{pid.read()}"
        until(lambda: not os.path.exists(process), f"the end of {id}")
        self._call(way, "delete", id)
        return seconds

    def _call(self, way: str, *words: str) -> None:
        out, err = self.bundle + "/out", self.bundle + "/err"
        command = [self.runtimes[way], "--root", self.engine.host.path("root"), *words]
        if self.engine.host.run_to_files(command, out, err, self.engine.environment()):
            with open(err) as complaint:
                raise RuntimeError(f"{' '.join(command)}: {complaint.read()}")


@dataclass(frozen=True)
class Soaked:
    """What `starts` starts did. left: a line for each trace. first, last: of their tenths."""

    starts: int
    left: list[str]
    server_before: dict[int, Use]  # by pid, once it had met everything
    server_after: dict[int, Use]
    first: Times
    last: Times


def soak(starts: Starts, count: int, say: Say) -> Soaked:
    """`count` starts through the wrapper, half of them with the claim server.

    Beside the first and the last tenth of them plain starts are made, one a round.
    """
    every, rounds = (PLAIN, WITHOUT_SERVER, WITH_SERVER), count // 2
    tenth = max(rounds // 10, 1)
    starts.warm_up()
    starts.rest()
    before = traces.of(starts.engine.host)
    first: Times = {way: [] for way in every}
    last: Times = {way: [] for way in every}
    use = starts.server.use()
    for number in range(rounds):
        measured = first if number < tenth else last if number >= rounds - tenth else None
        times = starts.round(*(every if measured else every[1:]))
        if measured is not None:
            for way in measured:
                measured[way].append(times[way])
        if number + 1 == tenth:
            use = starts.server.use()
        if (number + 1) % 100 == 0:
            say(f"{2 * (number + 1)} of {count} starts")
    starts.rest()
    after = traces.of(starts.engine.host)
    left = traces.leftovers(before, after)
    return Soaked(2 * rounds, left, use, starts.server.use(), first, last)
