"""A machine with the packages, two software GPUs, and containers."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

from release.packages.hosts.machine import REPOSITORY, Machine
from support.bundle import rootfs, spec
from support.host.private_host import Result

GPU = "/run/softgpu"
SETTINGS = f'driver-root = "{GPU}"\n'
# Of a cluster without a running API server.
KUBECONFIG = json.dumps(
    {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
)
GIB = 1 << 30
# All that the packages say where no systemd runs.
NO_TMPFS = (
    "vcuda-runtime: /run/vcuda: shares the file system of /run, since no systemd runs here;"
    " give it a tmpfs of its own\n"
)
WORKLOAD = "/usr/lib/vcuda/softgpu/vcuda-workload"
STOPPED_AT_1_GIB = {
    "allocated_bytes": GIB,
    "exact_bytes": GIB,
    "error": "CUDA_ERROR_OUT_OF_MEMORY",
}


def bring(machine: Machine, paths: list[str]) -> list[str]:
    """The same files as the machine sees them."""
    for path in paths:
        shutil.copy(path, machine.shared)
    return ["/mnt/shared/" + os.path.basename(path) for path in paths]


def install(machine: Machine, debs: list[str]) -> Result:
    """As unattended upgrades go: settings that were edited stay."""
    return machine.run("dpkg", "-i", "--force-confold", *bring(machine, debs))


def make_gpus(machine: Machine) -> None:
    machine.check("softgpu", "create", GPU, "--gpus", "2")
    machine.write("/etc/vcuda/config.toml", SETTINGS)


def join_cluster(machine: Machine) -> None:
    """Where kubeadm writes kube-scheduler's credentials."""
    machine.write("/etc/kubernetes/scheduler.conf", KUBECONFIG, 0o600)


def run(machine: Machine, name: str, *command: str) -> Result:
    """`vcuda run` with 30 % and 1 GiB."""
    share = ("--core", "30", "--memory", "1GiB")
    return machine.run("vcuda", "run", "--name", f"{machine.name}-{name}", *share, "--", *command)


def allocates(machine: Machine) -> Any:
    """What a container with 1 GiB gets before it is refused."""
    result = run(machine, "a", WORKLOAD, "alloc")
    assert result.rc == 0, result.stderr
    return json.loads(result.stdout)


class Container:
    """One with 1 GiB, as an engine starts it: by the wrapper, from a bundle. It sleeps."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.id = machine, machine.name + "-c"
        self.bundle = "/mnt/shared/bundle"
        folder = machine.shared + "/bundle"
        os.mkdir(folder)
        workload = REPOSITORY + "/build/softgpu/vcuda-workload"
        rootfs.build(folder + "/rootfs", {"/usr/bin/vcuda-workload": workload})
        asked = {"vcuda.io/core": "30", "vcuda.io/memory": "1GiB"}
        command = ["sh", "-c", "while :; do sleep 0.05; done"]
        self._config = spec.plain(command, cgroups_path="/" + self.id, annotations=asked)

    def start(self) -> None:
        """As engines do: each start begins with a config.json of theirs."""
        with open(self.machine.shared + "/bundle/config.json", "w") as file:
            json.dump(self._config, file)
        words = f"vcuda-container-runtime run --detach --bundle {self.bundle} {self.id}"
        self.machine.check("sh", "-c", f"{words} </dev/null >{self.bundle}/log 2>&1")

    def call(self, verb: str, *words: str, runtime: str = "vcuda-container-runtime") -> str:
        return self.machine.check(runtime, verb, self.id, *words)

    def allocates(self, runtime: str = "vcuda-container-runtime") -> Any:
        return json.loads(self.call("exec", "vcuda-workload", "alloc", runtime=runtime))

    def status(self) -> str:
        return str(json.loads(self.call("state", runtime="runc"))["status"])

    def shim(self) -> str:
        """The content of the libcuda that its programs open."""
        library = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
        return self.call("exec", "sha256sum", library).split()[0]
