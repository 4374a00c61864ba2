"""The claim server (`vcuda serve`) on a private host."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from support.host.private_host import PrivateHost
from support.processes import children_of, name_of
from support.product import Product
from support.waiting import until
from vcuda_oci.start import claim_socket

LOG = "claim-server.log"


@dataclass(frozen=True)
class Use:
    """Open files and resident memory of one process of the claim server."""

    descriptors: int
    resident_bytes: int


class ClaimServer:
    """A running claim server. pid: its process id on the test's own host."""

    def __init__(self, host: PrivateHost, product: Product, state_dir: str) -> None:
        socket, before = f"/proc/{host.pid}/root{state_dir}/{claim_socket.NAME}", 0
        if os.path.exists(socket):
            before = os.stat(socket).st_ino
        self.nsenter = host.daemon([f"{product.prefix}/bin/vcuda", "serve"], LOG)
        until(
            lambda: (
                self.nsenter.poll() is not None
                or (os.path.exists(socket) and os.stat(socket).st_ino != before)
            ),
            f"{socket}, see {LOG}",
        )
        (self.pid,) = children_of(self.nsenter.pid)
        # Until a keeper has its name it looks like a worker.
        until(self._is_complete, f"its workers and keepers, see {LOG}")

    def _is_complete(self) -> bool:
        keepers = sum(map(is_keeper, children_of(self.pid)))
        return keepers >= len(claim_socket.KEEPERS) and len(self.workers()) == claim_socket.WORKERS

    def workers(self) -> list[int]:
        """Process ids of the workers, without the keepers."""
        return [pid for pid in children_of(self.pid) if not is_keeper(pid)]

    def use(self) -> dict[int, Use]:
        """The use of the server and of each worker, by process id."""
        return {pid: _use(pid) for pid in (self.pid, *self.workers())}

    def close(self) -> None:
        """End the server. Raises RuntimeError if it had ended by itself, or ends with a failure."""
        workers = self.workers()
        os.kill(self.pid, signal.SIGTERM)
        if status := self.nsenter.wait(30):
            raise RuntimeError(f"vcuda serve: exit {status}")
        self._await_end(workers)

    def kill(self) -> None:
        """Kill the server alone, as the kernel does when memory is short; its workers remain."""
        workers = self.workers()
        os.kill(self.pid, signal.SIGKILL)
        self.nsenter.wait(30)
        self._await_end(workers)

    @staticmethod
    def _await_end(workers: list[int]) -> None:
        left = "workers of vcuda serve to end"
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers), left)


def is_keeper(pid: int) -> bool:
    return name_of(pid) in (*claim_socket.KEEPERS, claim_socket.MPS_KEEPER)


def _use(pid: int) -> Use:
    with open(f"/proc/{pid}/statm") as fields:
        resident = int(fields.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return Use(len(os.listdir(f"/proc/{pid}/fd")), resident)
