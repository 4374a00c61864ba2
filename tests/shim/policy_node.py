"""A node with containers that hold shares under policies: its ledger, its guests, its arbiter.

Guests and arbiter are processes of their own, so each can be given another clock by `env`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from support.files import ROOT
from support.gpu.guest import BUILD, PYTHON, SHIM, WORKLOAD, Guest
from support.gpu.guest import share as entry
from support.softgpu.virtual_time import Clock
from support.waiting import until
from vcuda_oci.container import request
from vcuda_oci.container.identity import Owner
from vcuda_oci.host import host
from vcuda_oci.ledger import claim
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.pages import page_reader
from vcuda_oci.placement.rules import Rules

# The arbiter's processor time is real; on a virtual clock its polls take no time.
ARBITER = """
import signal, sys, time
if "virtual" in sys.argv:
    time.thread_time = lambda: 0.0
from vcuda_plugin.agent.compute.grants import Arbiter
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
print("ready", flush=True)
with Arbiter(sys.argv[1]) as arbiter:
    while not ended:
        time.sleep(arbiter.sample())
"""

SOFTGPU = os.path.join(BUILD, "softgpu", "softgpu")
TURN_KEEPER = os.path.join(BUILD, "turns", "vcuda-turn-keeper")


class PolicyNode:
    """`folder` is the node's own; `env` goes to every process that is started on it."""

    def __init__(self, folder: str, driver_root: str, env: Mapping[str, str] | None = None) -> None:
        self.folder, self.driver_root, self.env = folder, driver_root, dict(env or {})
        self.state_dir = os.path.join(folder, "state")
        self._keeper: subprocess.Popen[bytes] | None = None
        self.ledger = Ledger(self.state_dir)
        os.makedirs(self.state_dir)
        self.host = host.load(driver_root, self.state_dir + "/host.json")

    def container(self, shim: str = SHIM, **words: str) -> Guest:
        """A container that asked for `words`, on the first GPU; without a process yet.

        shim: the one that it keeps.
        """
        id = f"c{len(self.ledger.read()[0])}"
        options = {key.replace("_", "-"): value for key, value in words.items()}
        asked = request.RawRequest({"memory": "256MiB", "gpu": "0", **options}, "test")
        # Its claimant is this process, so it lives as long as the test.
        owner, wanted, rules = Owner(id, id), request.parse(asked), Rules()
        allocation, _ = claim.claim(
            self.ledger, self.host, claim.Claim(owner, wanted, ["/nowhere"], os.getpid()), rules
        )
        share = allocation.shares[0]
        guest = Guest(
            os.path.join(self.folder, id),
            self.driver_root,
            [entry(share.uuid, share.memory_bytes)],
            shim,
        )
        for page in (guest.limits, guest.usage):
            os.unlink(page)
            os.symlink(f"{self.ledger.containers}/{id}/{os.path.basename(page)}", page)
        return guest

    def busy(
        self,
        guest: Guest,
        seconds: float,
        kernel_us: int = 1000,
        ahead: int = 16,
        go: str = "",
        clock: Clock | None = None,
    ) -> subprocess.Popen[str]:
        command = [WORKLOAD, "busy", "--seconds", str(seconds), "--kernel-us", str(kernel_us)]
        command += ["--async", str(ahead)] + (["--wait-file", go] if go else [])
        return guest.start(*(clock.command(*command) if clock else command), env=self.env)

    def shares(self, guests: Sequence[Guest], seconds: float, **shape: Any) -> list[float]:
        """The part of the GPU's time that each got while all were busy."""
        go = os.path.join(self.folder, "go")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(go)
        started = [self.busy(guest, seconds, go=go, **shape) for guest in guests]
        until(lambda: self._are_ready(started), "a context of each process")
        with open(go, "w", encoding="utf-8"):
            pass
        return [share_of(process) for process in started]

    def _are_ready(self, processes: Sequence[subprocess.Popen[str]]) -> bool:
        """Whether each has a context on the GPU; one that ended will never have."""
        command = [SOFTGPU, "time", self.driver_root, "--json"]
        gpu = json.loads(subprocess.check_output(command))["gpus"][0]
        seen = {one["pid"] for one in gpu["processes"]}
        return all(one.pid in seen or one.poll() is not None for one in processes)

    def clock(self, processes: int) -> Clock:
        """A virtual clock that continues at the time of the node's last one.

        A turn keeper runs in it besides, until the next clock or `close`.
        """
        self.close()
        clock = Clock(pathlib.Path(self.folder), processes + 1)
        command = clock.command(TURN_KEEPER, self.state_dir, str(os.getpid()))
        self._keeper = subprocess.Popen(command, env={"PATH": os.environ["PATH"], **self.env})
        return clock

    def close(self) -> None:
        if self._keeper:
            self._keeper.kill()
            self._keeper.wait()
        self._keeper = None

    def shares_on(
        self, clock: Clock, guests: Sequence[Guest], seconds: float, **shape: Any
    ) -> list[float]:
        """The same in virtual time."""
        started = [self.busy(guest, seconds, clock=clock, **shape) for guest in guests]
        return [share_of(process) for process in started]

    def granted_shares(self, guests: Sequence[Guest], seconds: float, **shape: Any) -> list[float]:
        """The same in virtual time, beside an arbiter that begins when they do."""
        clock = self.clock(len(guests) + 1)
        with self.arbiter(clock):
            return self.shares_on(clock, guests, seconds, **shape)

    def program(self, code: str, *words: str, clock: Clock | None = None) -> subprocess.Popen[str]:
        """A program of the host's, which has the product's modules."""
        command = [PYTHON, "-c", code, *words]
        path = os.pathsep.join(
            os.path.join(ROOT, part) for part in ("oci", "runtime_hook", "plugin")
        )
        return subprocess.Popen(
            clock.command(*command) if clock else command,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextlib.contextmanager
    def arbiter(self, clock: Clock | None = None) -> Iterator[subprocess.Popen[str]]:
        """Run the arbiter, and without a clock a turn keeper, until the block ends."""
        if not clock:
            self.close()
            self._keeper = subprocess.Popen([TURN_KEEPER, self.state_dir, str(os.getpid())])
        process = self.program(
            ARBITER, self.state_dir, *(["virtual"] if clock else []), clock=clock
        )
        try:
            assert process.stdout is not None
            # On a virtual clock no process begins before all have started.
            if not clock:
                assert process.stdout.readline() == "ready\n", process.communicate()[1]
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=30)
        assert (process.returncode, err) in [(0, ""), (-signal.SIGKILL, "")]


def share_of(process: subprocess.Popen[str]) -> float:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return float(json.loads(out)["share"])


def limits_of(guest: Guest) -> page_reader.Limits:
    with open(guest.limits, "rb") as limits:
        return page_reader.read_limits(limits.read())
