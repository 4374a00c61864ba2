"""Podman with private roots; it has no daemon, only a conmon per container."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from support.engines.base import IMAGE, Engine, Result, Wanted


class Podman(Engine):
    name = "podman"
    programs: tuple[str, ...] = ("podman", "conmon", "runc")
    _serial = itertools.count()

    def open(self) -> None:
        self.host.check(self.command("import", self.files.layer, IMAGE))

    def command(self, *arguments: str) -> list[str]:
        return [
            "podman",
            f"--root={self.host.path('root')}",
            f"--runroot={self.host.path('runroot')}",
            f"--tmpdir={self.host.path('tmp')}",
            f"--runtime={self.runtime}",
            "--storage-driver=vfs",
            "--cgroup-manager=cgroupfs",
            "--events-backend=file",
            *arguments,
        ]

    def podman(self, *arguments: str) -> Result:
        return self.host.run(self.command(*arguments))

    def _run(self, wanted: Wanted) -> Result:
        """The container's output from its log, then Podman's own errors.

        An attached run may lose a short output, which conmon may read before its reader connects.
        """
        folder = self.host.path("outputs")
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o1777)  # Podman may run as another user
        log = f"{folder}/{next(self._serial)}"
        words = ["--rm", "--attach=stdin", f"--log-opt=path={log}", *self._options(wanted)]
        podman = self.podman("run", *words)
        written = {"stdout": "", "stderr": ""}
        if os.path.exists(log):
            with open(log) as lines:
                for line in lines:  # of conmon's k8s-file: <time> stdout|stderr F|P <text>
                    _, stream, whole, text = line.rstrip("\n").split(" ", 3)
                    written[stream] += text + "\n" * (whole == "F")
            os.unlink(log)
        # Podman's own standard output is only the container's id.
        return Result(podman.rc, written["stdout"], written["stderr"] + podman.stderr)

    def _start(self, wanted: Wanted) -> Result:
        return self.podman("run", "--detach", *self._options(wanted))

    def _options(self, wanted: Wanted) -> list[str]:
        options = [
            f"--name={wanted.container_id}",
            "--network=none",
            "--log-driver=k8s-file",
            f"--cgroup-parent={self.host.cgroup_parent}",
            # Podman gives no MKNOD by default, Docker and containerd do.
            "--cap-add=MKNOD",
            # Without CAP_SYS_RESOURCE Podman's higher defaults make the container fail.
            "--ulimit=nofile=1024:1024",
            "--ulimit=nproc=1024:1024",
        ]
        options += [f"--env={key}={value}" for key, value in wanted.env.items()]
        options += [f"--annotation={key}={value}" for key, value in wanted.annotations.items()]
        options += [f"--volume={outside}:{inside}:ro" for outside, inside in wanted.mounts]
        return [*options, IMAGE, *wanted.args]

    def exec(self, container_id: str, args: Sequence[str]) -> Result:
        return self.podman("exec", container_id, *args)

    def kill(self, container_id: str, signal: str = "KILL") -> None:
        self.podman("kill", f"--signal={signal}", container_id)

    def wait(self, container_id: str) -> int:
        return int(self.host.check(self.command("wait", container_id)))

    def logs(self, container_id: str) -> str:
        return self.podman("logs", container_id).stdout

    def delete(self, container_id: str) -> None:
        self.podman("rm", "--force", "--time=0", container_id)


class PodmanV2(Podman):
    name = "podman-v2"
    cgroup_world = "v2"

    def _options(self, wanted: Wanted) -> list[str]:
        # It asks for 2048 by itself; where v1 has the pids controller, v2 has no pids.max.
        return ["--pids-limit=-1", *super()._options(wanted)]
