"""A private CRI-O, called through CRI. CRIO names a folder with `crio` and `pinns`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from support.engines.base import IMAGE
from support.engines.cri import Cri
from support.host.private_host import PATH
from support.needed import given_or_skip

VARIABLE = "CRIO"
# What the engine of a cluster's node has too: its folders, and the image of a sandbox.
PLACES = """[crio]
root = "{folder}/root"
runroot = "{runroot}"
storage_driver = "vfs"
log_dir = "{folder}/crio-logs"

[crio.api]
listen = "{socket}"

[crio.image]
pause_image = "{image}"
signature_policy = "/etc/containers/policy.json"
"""
# … and its runtime, without handlers.
RUNTIME = """
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
pinns_path = "{programs}/pinns"
"""
CONFIG = f"""{PLACES}{RUNTIME}hooks_dir = ["{{folder}}/hooks.d"]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
default_capabilities = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "MKNOD", "SETGID", "SETUID"]

[crio.runtime.runtimes.runc]
runtime_path = "{{runc}}"
runtime_root = "{{folder}}/runc"

[crio.nri]
enable_nri = false
"""
# Of a sandbox that has a process: ends by SIGTERM, and reaps.
PAUSE = ["sh", "-c", "trap exit TERM; while :; do sleep 1000 & wait; done"]
HANDLER = """
[crio.runtime.runtimes.vcuda]
runtime_path = "{runtime}"
runtime_root = "{folder}/runc"
"""


class Crio(Cri):
    """With its configuration in the default places of its own host."""

    name = "crio"
    programs = ("conmon", "runc", "podman")
    config = CONFIG + HANDLER
    runroot = "runroot"  # a path, or a name in the scratch folder

    @classmethod
    def missing(cls) -> str | None:
        given_or_skip(VARIABLE, "CRI-O")
        return super().missing()

    def open(self) -> None:
        self.socket = self.host.path("crio.sock")
        self._image()
        os.mkdir(self.host.path("hooks.d"))
        self.configure()
        self._start_daemon()
        self.connect()

    def daemon_command(self) -> list[str]:
        return ["env", f"PATH={self.path()}", "crio"]

    def _start_daemon(self) -> None:
        self._daemon = self.host.daemon(self.daemon_command(), "crio.log")

    def restart(self, meanwhile: Callable[[], object] = bool) -> None:
        self.host.kill(self._daemon)
        meanwhile()
        self._start_daemon()
        self.await_ready()

    @staticmethod
    def path() -> str:
        """PATH with CRI-O's programs."""
        return f"{os.environ[VARIABLE]}:{PATH}"

    def configure(self) -> None:
        """Write the settings file, before the daemon starts."""
        text = self.config.format(
            folder=self.host.folder,
            runroot=self.host.path(self.runroot),
            image=IMAGE,
            programs=os.environ[VARIABLE],
            runc=self.plain_runtime(),
            runtime=self.runtime,
            socket=self.socket,
        )
        self.host.check(["mkdir", "-p", "/etc/crio"])
        self.host.check(["cp", self.host.write("crio.conf", text), "/etc/crio/crio.conf"])

    def _image(self) -> None:
        """CRI-O reads what Podman has stored."""
        change = "--change=CMD " + json.dumps(PAUSE)
        self.podman("import", change, self.files.layer, IMAGE)

    def podman(self, *words: str) -> None:
        """Run Podman on the storage of CRI-O."""
        folders = {"root": "root", "runroot": self.runroot, "tmpdir": "tmp"}
        storage = [f"--{name}={self.host.path(folder)}" for name, folder in folders.items()]
        self.host.check(["podman", "--storage-driver=vfs", *storage, *words])

    def kill(self, container_id: str, signal: str = "KILL") -> None:
        # CRI has no signals.
        root = f"--root={self.host.path('runc')}"
        self.host.run([self.plain_runtime(), root, "kill", self.main(container_id), signal])


class CrioV2(Crio):
    name = "crio-v2"
    cgroup_world = "v2"
