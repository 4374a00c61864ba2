"""Questions of MPS version 2 with static partitions. As mps.py: a private daemon."""

from __future__ import annotations

import re
import subprocess
import sys

from bench.result import Figure
from gpu.fences import mps
from gpu.machine import Machine, UnmeasuredError
from vcuda_oci.model.mps import has_partitions

_NARROW = 10
_HOLD = mps.CLIENT + "import sys; sys.stdin.readline()"


class Daemon(mps.Daemon):
    """Raises UnmeasuredError: the driver has no static partitions of version 2."""

    options = ("-S", "-multiuser-server")

    def __init__(self, machine: Machine) -> None:
        if not has_partitions(machine.card.driver):
            raise UnmeasuredError(f"driver {machine.card.driver}: -S begins with 590")
        super().__init__(machine)
        self.uuid = machine.card.uuid

    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.say("lspart").splitlines()]

    def partition(self, chunks: int) -> tuple[str, int]:
        """What its clients name, and its multiprocessors. Raises UnmeasuredError."""
        told = self.say(f"sm_partition add {self.uuid} {chunks}")
        value = re.search(r"GPU-[0-9A-Fa-f-]+/\S+", told)
        if not value:
            raise UnmeasuredError(f"sm_partition add says: {told}")
        id = value[0].partition("/")[2]
        cells = next((row[2:] for row in self.rows() if row[1:2] == [id]), [])
        numbers = [int(cell) for cell in cells if cell.isdigit()]
        if len(numbers) < 2:
            raise UnmeasuredError(f"lspart says: {self.say('lspart')}")
        return value[0], numbers[1]


def partitions(machine: Machine) -> list[Figure]:
    """Raises UnmeasuredError."""
    daemon = Daemon(machine)
    try:
        named, own = daemon.partition(1)
        seen = daemon.client(daemon.pipes, partition=named)["multiprocessors"]
        percent = daemon.client(daemon.pipes, _NARROW, named)["multiprocessors"]
        without = daemon.client(daemon.pipes)["rc"]
        removed, added = _beside_a_client(daemon, named)
        return [
            Figure("static.chunk", own, "multiprocessors", None, {}, f"{daemon.rows()}"),
            Figure("static.off by", abs(seen - own), "multiprocessors", 0, {}),
            Figure("static.with 10 %", percent, "multiprocessors", None, {}, f"of {own}"),
            Figure("static.none named", without, "error of the context", None, {}),
            Figure("static.removed", len(removed), "partitions left", None, {}, f"{removed}"),
            Figure("static.added", bool(added), "partitions", None, {}, added),
        ]
    finally:
        daemon.close()


def _beside_a_client(daemon: Daemon, named: str) -> tuple[list[str], str]:
    """The ids that are left after its partition was to be removed; what another one is named by."""
    id = named.partition("/")[2]
    client = subprocess.Popen(
        [sys.executable, "-c", _HOLD],
        env=daemon.environment(daemon.pipes, 100, named),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with client:
        assert client.stdout is not None
        client.stdout.readline()
        daemon.say(f"sm_partition rm {daemon.uuid} {id}")
        left = [row[1] for row in daemon.rows() if row[1:2] == [id]]
        try:
            added = daemon.partition(1)[0]
        except UnmeasuredError:
            added = ""
    return left, added
