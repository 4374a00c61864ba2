"""A private containerd, and `ctr` as its front end."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence

from support.engines.base import IMAGE, Engine, Result, Wanted
from support.waiting import until

# By default a collection that takes 0.1 ms has the scheduler awake 200 times a second from then on,
# which takes 1.5 % of a processor for each idle daemon; 0 makes that once a second.
SCHEDULER, AWAKE_LESS = "io.containerd.gc.v1.scheduler", "pause_threshold = 0.0"
CONFIG = """version = 2
root = "{folder}/root"
state = "{folder}/state"

[grpc]
address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
# Without CAP_SYS_RESOURCE a negative oom_score_adj fails the pod.
restrict_oom_score_adj = true
disable_tcp_service = true
disable_cgroup = {disable_cgroup}

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "{default}"

[plugins."{scheduler}"]
{awake_less}
"""
# Container annotations only: with pod_annotations, a pod's author could write the same keys.
HANDLER = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.vcuda]
runtime_type = "io.containerd.runc.v2"
container_annotations = ["vcuda.io/*", "tencent.com/*"]

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.vcuda.options]
BinaryName = "{runtime}"
SystemdCgroup = false
"""


# ctr opens the FIFOs of a container's output while it starts the container, and does not read those
# that it has not opened when the container ends: on a busy machine a short output is lost. The shim
# starts this logger before the process. The logger ignores the shim's signal and ends with the
# output.
LOGGER = """#!/bin/sh
trap '' TERM
cat <&3 >"{folder}/$2.out" 5>&- &
cat <&4 >"{folder}/$2.err" 5>&- &
exec 3<&- 4<&- 5>&-
wait
"""


class Containerd(Engine):
    """The daemon and the image, for both front ends."""

    programs = ("containerd", "ctr", "containerd-shim-runc-v2", "runc")
    namespace: str
    snapshotter = "native"
    disable_cgroup = False

    def config(self) -> str:
        """The daemon's configuration file."""
        text = self.filled(CONFIG, default="vcuda") + HANDLER.format(runtime=self.runtime)
        return self.host.write("config.toml", text)

    def filled(self, config: str, **values: str) -> str:
        """CONFIG, or a text with the same fields."""
        return config.format(
            folder=self.host.folder,
            socket=self.socket,
            image=IMAGE,
            snapshotter=self.snapshotter,
            disable_cgroup=str(self.disable_cgroup).lower(),
            scheduler=SCHEDULER,
            awake_less=AWAKE_LESS,
            **values,
        )

    def open(self) -> None:
        self.socket = self.host.path("c.sock")
        self._start_daemon()
        words = ["images", "import", f"--snapshotter={self.snapshotter}", self.files.image]
        self.host.check(self.command(*words))

    def daemon_command(self) -> list[str]:
        return ["containerd", "--config", self.config()]

    def _start_daemon(self) -> None:
        self._daemon = self.host.daemon(self.daemon_command(), "containerd.log")
        until(lambda: self.ctr("version").rc == 0, "containerd, see containerd.log")

    def restart(self, meanwhile: Callable[[], object] = bool) -> None:
        """Kill the daemon and start it again; its containers continue to run. meanwhile: called
        while there is none."""
        self.host.kill(self._daemon)
        meanwhile()
        self._start_daemon()

    def command(self, *arguments: str) -> list[str]:
        return ["ctr", f"--address={self.socket}", f"--namespace={self.namespace}", *arguments]

    def ctr(self, *arguments: str) -> Result:
        return self.host.run(self.command(*arguments))


class Ctr(Containerd):
    name = "containerd-ctr"
    namespace = "default"

    def open(self) -> None:
        self._serial = itertools.count()
        self._logger = self.host.write("logger", LOGGER.format(folder=self.host.folder), 0o755)
        super().open()

    def _run(self, wanted: Wanted) -> Result:
        return self._with_output(("run", "--rm"), self._options(wanted))

    def _start(self, wanted: Wanted) -> Result:
        log = self._log(wanted.container_id)
        return self.ctr("run", "--detach", f"--log-uri=file://{log}", *self._options(wanted))

    def _options(self, wanted: Wanted) -> list[str]:
        options = [
            f"--snapshotter={self.snapshotter}",
            f"--runc-binary={self.runtime}",
            f"--cgroup={self.host.cgroup_parent}/{wanted.container_id}",
        ]
        options += [f"--env={key}={value}" for key, value in wanted.env.items()]
        options += [f"--annotation={key}={value}" for key, value in wanted.annotations.items()]
        options += [
            f"--mount=type=bind,src={outside},dst={inside},options=rbind:ro"
            for outside, inside in wanted.mounts
        ]
        return [*options, IMAGE, wanted.container_id, *wanted.args]

    def _log(self, container_id: str) -> str:
        return self.host.path(container_id + ".log")

    def exec(self, container_id: str, args: Sequence[str]) -> Result:
        return self._with_output(("task", "exec"), ["--exec-id=exec", container_id, *args])

    def _with_output(self, command: Sequence[str], words: Sequence[str]) -> Result:
        """The container's output, followed by ctr's own."""
        serial = f"output-{next(self._serial)}"
        ctr = self.ctr(*command, f"--log-uri=binary://{self._logger}?to={serial}", *words)
        out, err = (self._taken(f"{serial}.{kind}") for kind in ("out", "err"))
        return Result(ctr.rc, out + ctr.stdout, err + ctr.stderr)

    def _taken(self, name: str) -> str:
        """Read and remove a file; "" if no process was started."""
        try:
            text = self.host.read(name)
            os.unlink(self.host.path(name))
        except FileNotFoundError:
            return ""
        return text

    def kill(self, container_id: str, signal: str = "KILL") -> None:
        self.ctr("task", "kill", f"--signal={signal}", container_id)

    def wait(self, container_id: str) -> int:
        until(lambda: self._status(container_id) != "RUNNING", f"the end of {container_id}")
        # Deleting the task warns of an exit code other than 0; the container itself stays.
        warning = self.ctr("task", "delete", container_id).stderr
        code = re.search(r"non-zero exit code (\d+)", warning)
        return int(code.group(1)) if code else 0

    def _status(self, container_id: str) -> str:
        rows = (line.split() for line in self.ctr("task", "list").stdout.splitlines())
        return next((row[2] for row in rows if row[0] == container_id), "")

    def logs(self, container_id: str) -> str:
        with open(self._log(container_id)) as log:
            return log.read()

    def delete(self, container_id: str) -> None:
        self.ctr("task", "delete", "--force", container_id)
        self.ctr("container", "delete", container_id)
        if os.path.exists(self._log(container_id)):
            os.unlink(self._log(container_id))


class CtrV2(Ctr):
    name = "containerd-ctr-v2"
    cgroup_world = "v2"

    def _options(self, wanted: Wanted) -> list[str]:
        # ctr asks for 1024 by itself; where v1 has the cpu controller, v2 has no cpu.weight.
        return ["--cpu-shares=0", *super()._options(wanted)]
