"""The installed `vcuda run` on one private host."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from support.engines.base import Result
from support.engines.low_level import LowLevel
from support.host import cgroups
from support.product import Product
from support.waiting import until

SLEEPS = ["--", "sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.05; done"]


# A cgroup is /vcuda-ID.PID.START: a later run of the tests removes what a killed one left.
PREFIX = f"it-{os.getpid()}-of-"


def all_gone(left: Callable[[], list[str]]) -> None:
    try:
        until(lambda: left() == [], "the test's containers to be gone")
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {left()}") from None


class Command:
    """The installed `vcuda` on one private host, with settings and records of this test."""

    def __init__(self, product: Product, engine: LowLevel, folder: str) -> None:
        self.engine, self.host = engine, engine.host
        self._running: list[tuple[subprocess.Popen[str], int]] = []
        self.state = folder + "/state"
        self.program = product.prefix + "/bin/vcuda"
        self.config = folder + "/config.toml"
        with open(self.config, "w") as file:
            file.write(
                f'runtime = "{engine.plain_runtime()}"\nstate-dir = "{self.state}"\n'
                f'driver-root = "{product.driver_root}"\n'
            )

    def __call__(self, *words: str) -> Result:
        return self.host.run(self.words(words), env=self.engine.environment())

    def json(self, *words: str) -> Any:
        result = self(*words, "--json")
        assert result.rc == 0, result.stderr
        return json.loads(result.stdout)

    def run(self, *words: str, name: str = "any") -> Result:
        return self("run", "--name", PREFIX + name, *words)

    def start(self, name: str, *words: str) -> tuple[subprocess.Popen[str], int]:
        """`vcuda run` in the background, and its pid in the private host, once it runs."""
        line = shlex.join(self.words(["run", "--name", PREFIX + name, *words]))
        process = subprocess.Popen(
            self.host.inside(["sh", "-c", f"echo $$; exec {line}"]),
            env=self.host.environment(self.engine.environment()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        self._running.append((process, pid))
        until(lambda: self._runs(PREFIX + name), f"{name} to run")
        return process, pid

    def send(self, signal: str, pid: int) -> None:
        self.host.check(["busybox", "kill", f"-{signal}", str(pid)])

    def leftovers(self) -> list[str]:
        """Leftovers of containers: records, pages, the runtime's state, cgroups."""
        found = []
        runtime = os.path.basename(self.engine.plain_runtime())
        for name in ("allocations", "containers", "run", runtime):
            folder = f"{self.state}/{name}"
            found += os.listdir(folder) if os.path.isdir(folder) else []
        return found + sorted(cgroups.named("vcuda-" + PREFIX))

    def close(self) -> None:
        for process, pid in self._running:
            if process.poll() is None:  # its test has failed
                self.send("KILL", pid)
                process.wait(30)
        try:
            all_gone(self.leftovers)
        finally:  # else every later test fails too
            for group in cgroups.named("vcuda-" + PREFIX):
                cgroups.remove("/" + group)

    def _runs(self, name: str) -> bool:
        return any(e["id"] == name and e["status"] == "running" for e in self.json("ps"))

    def words(self, words: Sequence[str]) -> list[str]:
        return [self.program, "--config", self.config, *words]
