"""A private dockerd, which starts a containerd of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from support.engines.base import IMAGE, Engine, Result, Wanted
from support.engines.containerd import AWAKE_LESS, SCHEDULER
from support.host.private_host import PATH
from support.waiting import until

# dockerd writes its containerd's settings and has no option for those of the collector. Docker 20
# writes settings of version 1, where plugins have short names.
CONTAINERD = f"""#!/bin/sh
grep -q '^version = [23]' "$2" && name='"{SCHEDULER}"' || name=scheduler
printf '\\n[plugins.%s]\\n{AWAKE_LESS}\\n' "$name" >>"$2"
exec "$(PATH={PATH} command -v containerd)" "$@"
"""


class Docker(Engine):
    name = "docker"
    programs: tuple[str, ...] = ("docker", "dockerd", "containerd", "runc")

    image = IMAGE

    def config(self) -> str:
        """The daemon's configuration file."""
        settings = {"runtimes": {"vcuda": {"path": self.runtime}}}
        return self.host.write("daemon.json", json.dumps(settings))

    def open(self) -> None:
        self._socket = self.host.path("d.sock")
        self.host.daemon(
            [
                *self.daemon(data=self.host.path("data"), state=self.host.path("exec")),
                f"--cgroup-parent={self.host.cgroup_parent}",
                "--exec-opt=native.cgroupdriver=cgroupfs",
            ],
            "dockerd.log",
        )
        self.begin()

    def daemon(self, data: str, state: str) -> list[str]:
        """dockerd's command line with its two folders; without overlay and without a bridge."""
        programs = self.host.path("programs")
        os.makedirs(programs, exist_ok=True)
        self.host.write("programs/containerd", CONTAINERD, 0o755)
        return [
            "env",
            f"PATH={programs}:{PATH}",
            "dockerd",
            f"--config-file={self.config()}",
            f"--host=unix://{self._socket}",
            f"--data-root={data}",
            f"--exec-root={state}",
            f"--pidfile={os.path.dirname(state)}/dockerd.pid",
            "--storage-driver=vfs",
            "--bridge=none",
            "--iptables=false",
            "--ip-forward=false",
        ]

    def begin(self) -> None:
        """Wait for dockerd, then load the image."""
        until(lambda: self.docker("version").rc == 0, "dockerd, see dockerd.log")
        self.host.check(self.command("import", self.files.layer, IMAGE))

    def command(self, *arguments: str) -> list[str]:
        return ["docker", "--host", f"unix://{self._socket}", *arguments]

    def docker(self, *arguments: str) -> Result:
        return self.host.run(self.command(*arguments))

    def _run(self, wanted: Wanted) -> Result:
        return self.docker("run", "--rm", *self._options(wanted))

    def _start(self, wanted: Wanted) -> Result:
        return self.docker("run", "--detach", *self._options(wanted))

    def _options(self, wanted: Wanted) -> list[str]:
        options = [f"--name={wanted.container_id}", "--runtime=vcuda", "--network=none"]
        options += [f"--env={key}={value}" for key, value in wanted.env.items()]
        options += [f"--annotation={key}={value}" for key, value in wanted.annotations.items()]
        options += [f"--volume={outside}:{inside}:ro" for outside, inside in wanted.mounts]
        return [*options, self.image, *wanted.args]

    def takes_annotations(self) -> bool:
        """Whether Docker has annotations (24 and newer); users of older ones use env."""
        version = self.host.check(self.command("version", "--format={{.Client.Version}}"))
        return int(version.split(".")[0]) >= 24

    def exec(self, container_id: str, args: Sequence[str]) -> Result:
        return self.docker("exec", container_id, *args)

    def kill(self, container_id: str, signal: str = "KILL") -> None:
        self.docker("kill", f"--signal={signal}", container_id)

    def wait(self, container_id: str) -> int:
        return int(self.host.check(self.command("wait", container_id)))

    def logs(self, container_id: str) -> str:
        return self.docker("logs", container_id).stdout

    def restart(self, container_id: str) -> Result:
        return self.docker("restart", "--time=0", container_id)

    def delete(self, container_id: str) -> None:
        self.docker("rm", "--force", container_id)


class DockerV2(Docker):
    name = "docker-v2"
    cgroup_world = "v2"
