"""A private host for the engines of one fixture; see private_host_init.py."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from support.host import cgroups, own_run
from support.host.namespaces import Namespaces
from support.waiting import until

INIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "private_host_init.py")
# The distribution's engines come before those of a version manager.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"

_serial = itertools.count()


@dataclass(frozen=True)
class Result:
    rc: int
    stdout: str
    stderr: str


class PrivateHost:
    """Namespaces, a scratch folder below /tmp and a cgroup parent, all removed by `close`."""

    def __init__(self, cgroup_world: str = "host") -> None:
        self.cgroup_parent = "/" + own_run.cgroup_name(str(next(_serial)))
        self.folder = own_run.scratch_folder()
        os.mkdir(os.path.join(self.folder, "home"))
        try:
            self._world = Namespaces(INIT, self.folder, cgroup_world, log=self.path("init.log"))
        except RuntimeError:
            shutil.rmtree(self.folder)
            raise
        self.pid = self._world.pid
        self.booted: tuple[str, ...] = ()  # words before each command, since a reboot

    def path(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    def read(self, *parts: str) -> str:
        with open(self.path(*parts), errors="replace") as file:
            return file.read()

    def write(self, name: str, text: str, mode: int = 0o644) -> str:
        """Write a file in the scratch folder; return its path."""
        path = self.path(name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def inside(self, argv: Sequence[str]) -> list[str]:
        enter = ["nsenter", "-t", str(self.pid), "--mount", "--pid", "--net", "--"]
        return [*enter, *self.booted, *argv]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "PATH": PATH,
            "HOME": self.path("home"),
            "TMPDIR": self.folder,
            "LC_ALL": "C",
            **(extra or {}),
        }

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        timeout: float = 60,
    ) -> Result:
        done = subprocess.run(
            self.inside(argv),
            env=self.environment(env),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def check(self, argv: Sequence[str], **options: object) -> str:
        """Run a command that must succeed; return its standard output."""
        result = self.run(argv, **options)  # type: ignore[arg-type]
        if result.rc:
            raise RuntimeError(f"{' '.join(argv)}: exit {result.rc}\n{result.stderr}")
        return result.stdout

    def run_to_files(
        self, argv: Sequence[str], out: str, err: str, env: Mapping[str, str] | None = None
    ) -> int:
        """Run a command with children that hold its standard output open after its end."""
        with open(out, "w") as stdout, open(err, "w") as stderr:
            done = subprocess.run(
                self.inside(argv),
                env=self.environment(env),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                timeout=60,
                check=False,
            )
        return done.returncode

    def daemon(self, argv: Sequence[str], log: str) -> subprocess.Popen[bytes]:
        with open(self.path(log), "ab") as output:
            return subprocess.Popen(
                self.inside(argv),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @staticmethod
    def kill(daemon: subprocess.Popen[bytes]) -> None:
        """Kill what `daemon` has started, and wait for its end."""
        with open(f"/proc/{daemon.pid}/task/{daemon.pid}/children") as children:
            # A process that entered the private host waits for the program that it started there.
            pid = int((children.read().split() or [str(daemon.pid)])[0])
        os.kill(pid, signal.SIGKILL)
        daemon.wait(30)

    def exit_code_of_orphan(self, pid: int) -> int:
        """Exit code of a detached process of this host; the last entry, because pids are reused."""
        until(lambda: f"\n{pid} " in "\n" + self.read("reaped"), f"the end of pid {pid}")
        lines = (line.split() for line in self.read("reaped").splitlines())
        return [int(code) for reaped, code in lines if int(reaped) == pid][-1]

    def close(self) -> None:
        self._world.close()
        cgroups.remove(self.cgroup_parent)
        shutil.rmtree(self.folder)
