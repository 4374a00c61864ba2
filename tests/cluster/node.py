"""A node: a real kubelet, real containerd, the node agent, software GPUs."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from cluster.control_plane import ADDRESS, NODE, SCHEDULER, ControlPlane, Service
from support import cgroups
from support.engines.base import IMAGE, Files
from support.engines.cri import Cri
from support.files import ROOT
from support.private_host import wait_until
from support.product import Product

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
SECONDS = 120

KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "failSwapOn": False,
    "failCgroupV1": False,
    "oomScoreAdj": 0,
    "enforceNodeAllocatable": [],
    "imageGCHighThresholdPercent": 100,
    "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
    "nodeStatusUpdateFrequency": "2s",
    "syncFrequency": "5s",
}
# The kubelet would write these into the kernel, for the whole machine: it finds files instead.
KERNEL = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
# By the tests' Python, which has what it needs; the distribution's packages are another test's.
EXTENDER = (
    "env",
    f"PYTHONPATH={ROOT}/oci:{ROOT}/plugin",
    sys.executable,
    "-m",
    "vcuda_plugin.extender.main",
)
# Pods are on the host's network, so containerd never calls this plugin.
NETWORK = {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "none"}]}


class Node:
    """One node and its control plane; close() ends every process by its own pid."""

    def __init__(self, files: Files, folder: str, programs: str) -> None:
        self.engine = Cri(files)
        self.host = self.engine.host
        self._services: list[Service] = []
        try:
            self.product = Product(folder + "/product", 2)
            self.product.configure(self.engine)
            self.engine.use(self.product.runtime)
            self._prepare_host()
            program = os.path.join(self.product.prefix, "bin/vcuda-")
            config = ["--config", self.product.config]
            self.cluster = ControlPlane(self.host, programs, [*EXTENDER, *config])
            self.agent = self._service(
                "agent",
                program + "node-agent",
                *config,
                "--node-name",
                NODE,
                "--kubeconfig",
                self.cluster.kubeconfig("admin"),
            )
            self.kubelet = self._service(
                "kubelet",
                os.path.join(programs, "kubelet"),
                "--config=" + self._kubelet_config(),
                "--kubeconfig=" + self.cluster.kubeconfig("kubelet"),
                "--hostname-override=" + NODE,
                "--node-ip=" + ADDRESS,
                "--cert-dir=" + self.host.path("kubelet-certs"),
            )
            self._create_runtime_class()
            wait_until(lambda: self.allocatable(CORE) == 200, "the node's GPUs", SECONDS)
            wait_until(self._is_ready, "the node, see kubelet.log", SECONDS)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for service in reversed(self._services):
            service.end()
        if hasattr(self, "cluster"):
            self.cluster.close()
        self.engine.close()

    def restart_kubelet(self) -> None:
        """Kill it, start it, and wait until the agent has registered both resources again."""
        before = self.agent.log().count(": registered as ")
        self.kubelet.end(signal.SIGKILL)
        self.kubelet.start()
        self.wait(
            lambda: self.agent.log().count(": registered as ") == before + 2,
            "the agent's registration with the new kubelet",
        )

    def run(self, name: str, core: int, memory: int, command: list[str] | None = None) -> None:
        """Create a pod with a share: percent of a GPU, units of 256 MiB."""
        share = {CORE: core, MEMORY: memory}
        main = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": command or ["sleep", "10000"],
            "resources": {"limits": share},
        }
        spec = {
            "runtimeClassName": "vcuda",
            "schedulerName": SCHEDULER,
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [main],
        }
        metadata = {"name": name, "namespace": "default"}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def apply(self, thing: dict[str, Any]) -> None:
        done = self.cluster.kubectl(
            "create", "--validate=false", "-f", "-", stdin=json.dumps(thing)
        )
        assert done.returncode == 0, done.stderr

    def get(self, *words: str) -> Any:
        done = self.cluster.kubectl("get", *words, "-o", "json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def delete(self, name: str) -> None:
        done = self.cluster.kubectl("delete", "pod", name, "--ignore-not-found", "--timeout=50s")
        assert done.returncode == 0, done.stderr

    def wait_running(self, name: str) -> None:
        """The phase does not say it: of a container that failed to start, and will be started
        again, the pod is Running too."""
        self.wait(lambda: self._main_runs(name), f"pod {name}")

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"{what}: {self.cluster.kubectl('get', 'events')}"
            time.sleep(0.3)

    def phase(self, name: str) -> str:
        pod = self.get("pod", name)
        return str(pod["status"].get("phase", "")) if pod else ""

    def exec(self, name: str, *command: str) -> str:
        done = self.cluster.kubectl("exec", name, "--", *command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def events(self, name: str, reason: str) -> list[str]:
        """The messages of a pod's events of one reason."""
        selector = f"--field-selector=involvedObject.name={name},reason={reason}"
        return [event["message"] for event in self.get("events", selector)["items"]]

    def allocatable(self, resource: str) -> int:
        node = self.get("node", NODE)
        return int(node["status"].get("allocatable", {}).get(resource, -1)) if node else -1

    def held(self) -> dict[str, tuple[int, int]]:
        """By pod name: percent and bytes that the ledger's records say."""
        return {
            record["pod"]["name"]: (share["core_percent"], share["memory_bytes"])
            for record in self.product.allocations(self.engine)
            for share in record["shares"]
        }

    def _service(self, name: str, *command: str) -> Service:
        service = Service(self.host, name, *command)
        self._services.append(service)
        return service

    def _main_runs(self, name: str) -> bool:
        pod = self.get("pod", name)
        statuses = pod["status"].get("containerStatuses", []) if pod else []
        return [status["name"] for status in statuses if "running" in status["state"]] == ["main"]

    def _is_ready(self) -> bool:
        conditions = self.get("node", NODE)["status"]["conditions"]
        return {"Ready": "True"}.items() <= {c["type"]: c["status"] for c in conditions}.items()

    def _create_runtime_class(self) -> None:
        kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "vcuda"}
        self.apply({**kind, "metadata": {"name": "vcuda"}})

    def _kubelet_config(self) -> str:
        values = {
            **KUBELET,
            "cgroupRoot": self.host.cgroup_parent,
            "containerRuntimeEndpoint": "unix://" + self.engine.socket,
        }
        return self.host.write("kubelet.json", json.dumps(values))

    def _prepare_host(self) -> None:
        """Its cgroup, its network plugin's file, and stand-ins for what the kubelet would tune."""
        for root in cgroups.hierarchies():
            group = root + self.host.cgroup_parent
            os.makedirs(group, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if os.path.exists(f"{group}/{name}"):
                    with open(f"{root}/{name}") as above, open(f"{group}/{name}", "w") as file:
                        file.write(above.read())
        network = self.host.write("10-none.conflist", json.dumps(NETWORK))
        self.host.check(["mkdir", "-p", "/etc/cni/net.d", "/var/lib/kubelet"])
        self.host.check(["cp", network, "/etc/cni/net.d/"])
        for name, value in KERNEL.items():
            stand_in = self.host.write(name.replace("/", "-"), f"{value}\n")
            self.host.check(["mount", "--bind", stand_in, "/proc/sys/" + name])
