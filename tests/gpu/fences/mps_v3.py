"""Questions of MPS version 3: its namespaces and its static partitions.

As mps.py: a private daemon, and no setting of the card changes. Partitions are the server's, and
end with it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from bench.result import Figure
from gpu.fences import mps
from gpu.machine import Machine, UnmeasuredError
from vcuda_oci.model.mps import has_namespaces, has_partitions_in_namespaces

_NARROW = 10
# Of some ten, in chunks.
_SMALL, _LARGE = 1, 2
_HOLD = mps.CLIENT + "import sys; sys.stdin.readline()"


class Daemon(mps.Daemon):
    """Version 3, with the server `v`. Raises UnmeasuredError: the driver does not have it."""

    options = ("-p", "3", "-m")

    def __init__(self, machine: Machine) -> None:
        if not has_namespaces(machine.card.driver):
            raise UnmeasuredError(f"driver {machine.card.driver}: version 3 begins with 615")
        super().__init__(machine)

    def verb(self, command: str, pipes: str = "") -> tuple[int, str]:
        """The exit status, and what is printed."""
        done = subprocess.run(
            [self.program, *command.split()],
            env=self.environment(pipes or self.pipes),
            stdout=subprocess.PIPE,
            text=True,
            timeout=20,
            check=False,
        )
        return done.returncode, done.stdout.strip()

    def do(self, command: str) -> str:
        """Raises UnmeasuredError: the command is refused."""
        status, told = self.verb(command)
        if status:
            raise UnmeasuredError(f"'{command}': {told}")
        return told

    def _served(self) -> int:
        status, told = self.verb("server list v --format=csv,noheader")
        if status:
            self.verb("server create v --uid=0")
        fields = [] if status else told.split(",")
        return int(fields[2]) if len(fields) > 3 and fields[3].lower() == "ready" else 0

    def space(self, name: str) -> str:
        """Make a namespace; return its pipe directory."""
        self.do(f"namespace create {name} --server=v")
        return f"{self.pipes}/v/{name}"

    def partition(self, name: str, chunks: int) -> tuple[str, int]:
        """What its clients name, and its multiprocessors. Raises UnmeasuredError."""
        told = self.do(f"sm-partition create {name} --server=v --device=0 --chunks={chunks}")
        value = re.search(r"CUDA_MPS_SM_PARTITION=(\S+)", told)
        width = re.search(r"sm-count=(\d+)", told)
        if not value or not width:
            raise UnmeasuredError(f"sm-partition create says: {told}")
        return value[1], int(width[1])


def namespaces(machine: Machine) -> list[Figure]:
    """Raises UnmeasuredError."""
    daemon = Daemon(machine)
    try:
        whole = daemon.client(f"{daemon.pipes}/v")["multiprocessors"]
        place = daemon.space("a")
        daemon.do(f"namespace set a --server=v --active-thread-percentage={mps.PERCENT}")
        wide = daemon.client(place)["multiprocessors"]
        narrow = daemon.client(place, _NARROW)["multiprocessors"]
        alone = os.path.join(daemon.folder, "alone")
        os.link(f"{place}/control", f"{alone}/control")
        single = daemon.client(alone)
        obeyed, _ = daemon.verb("namespace set a --server=v --active-thread-percentage=90", alone)
        columns = daemon.do("namespace list --server=v --format=csv").splitlines()[0]
        return [
            _part("namespaces.client of 100 %", wide, whole),
            _part(f"namespaces.client of {_NARROW} %", narrow, whole),
            Figure("namespaces.control alone", single["rc"], "error of cuInit", 0, {}),
            Figure("namespaces.own limits", obeyed, "status of root's namespace set", None, {}),
            Figure("namespaces.columns", columns.count(",") + 1, "columns", None, {}, columns),
        ]
    finally:
        daemon.close()


def partitions(machine: Machine) -> list[Figure]:
    """Raises UnmeasuredError."""
    daemon = Daemon(machine)
    try:
        columns, row = daemon.do("device list --server=v --format=csv").splitlines()[:2]
        (small, own), (large, _) = (
            daemon.partition(name, chunks) for name, chunks in (("p1", _SMALL), ("p2", _LARGE))
        )
        place = daemon.space("a")
        named = daemon.client(place, partition=small)["multiprocessors"]
        percent = daemon.client(place, _NARROW, small)["multiprocessors"]
        without = daemon.client(place)["rc"]
        beside = _create_beside_a_client(daemon, place, small)
        figures = [
            Figure("partitions.chunk", own, "multiprocessors", None, {}, f"{columns}: {row}"),
            Figure("partitions.off by", abs(named - own), "multiprocessors", 0, {}),
            Figure("partitions.with 10 %", percent, "multiprocessors", None, {}, f"of {own}"),
            Figure("partitions.none named", without, "error of the context", None, {}),
            Figure("partitions.beside a client", beside, "status of create", None, {}),
        ]
        if has_partitions_in_namespaces(machine.card.driver):
            status, told = daemon.verb("namespace set a --server=v --device=0 --sm-partition=p1")
            seen = daemon.client(place, partition=large)["multiprocessors"]
            note = f"{seen} of {own}, it named another"
            figures += [
                Figure("partitions.bound", status, "status of namespace set", 0, {}, told),
                Figure("partitions.bound off by", abs(seen - own), "multiprocessors", 0, {}, note),
            ]
        return figures
    finally:
        daemon.close()


def _create_beside_a_client(daemon: Daemon, place: str, partition: str) -> int:
    client = subprocess.Popen(
        [sys.executable, "-c", _HOLD],
        env=daemon.environment(place, 100, partition),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with client:
        assert client.stdout is not None
        client.stdout.readline()
        status, _ = daemon.verb("sm-partition create p3 --server=v --device=0 --chunks=1")
    return status


def _part(name: str, seen: int, whole: int) -> Figure:
    return Figure(name, 100 * seen / max(1, whole), "%", None, {}, f"of {whole}")
