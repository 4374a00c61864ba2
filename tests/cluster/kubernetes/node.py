"""A cluster of one node: real Kubernetes and engine, software GPUs, our chart."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster.kubernetes.chart import NAMESPACE, Chart
from cluster.kubernetes.control_plane import ADDRESS, NODE, SERVER, ControlPlane, Service
from cluster.kubernetes.engine import node_engine
from support.engines.base import IMAGE, Files
from support.files import ROOT
from support.host import cgroups
from support.host.private_host import PATH
from support.product import Product
from support.waiting import until
from vcuda_oci.model import names

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
SCHEDULER = "vcuda-scheduler"
LABEL = "app.kubernetes.io/name=vcuda-node-agent"
AGENT, EXTENDER = "daemonset/vcuda-node-agent", "deployment/vcuda-scheduler-extender"
SECONDS = 120
# The third has no MIG device until a test divides it, so it is not offered.
GPUS = (3, "--mig", "2=")

KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "clusterDNS": ["10.96.0.10"],  # none serves there
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


class Node:
    """The node and its control plane; close() ends every process by its own pid.

    programs: a folder with Kubernetes' programs.
    """

    def __init__(self, files: Files, folder: str, programs: str) -> None:
        self.engine = node_engine()(files)
        self.host = self.engine.host
        try:
            self.product = Product(folder + "/product", *GPUS)
            self._prepare_host()
            self.cluster = ControlPlane(self.host, programs)
            self.kubelet = Service(
                self.host,
                "kubelet",
                os.path.join(programs, "kubelet"),
                "--config=" + self._kubelet_config(),
                "--kubeconfig=" + self.cluster.kubeconfig("kubelet"),
                "--hostname-override=" + NODE,
                "--node-ip=" + ADDRESS,
                "--cert-dir=" + self.host.path("kubelet-certs"),
                "--v=2",
                *self.cluster.gate_words,
            )
            until(self._is_ready, "the node, see kubelet.log", SECONDS)
            kubeconfig = self.cluster.kubeconfig("admin")
            self.chart = Chart(self.host, kubeconfig, self.product, programs)
            self._install()
            self.wait(lambda: self.allocatable(CORE) == 200, "the node's GPUs")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        # An API server that is asked to end waits a minute for its clients.
        for service in reversed(self._services()):
            service.end(signal.SIGKILL)
        self.engine.close()

    def _services(self) -> list[Service]:
        control_plane = self.cluster.services if hasattr(self, "cluster") else []
        return [*control_plane, *([self.kubelet] if hasattr(self, "kubelet") else [])]

    def values(self) -> dict[str, Any]:
        """The chart's values for this node."""
        return {
            "registry": "docker.io/library",  # CRI-O takes no name without a registry
            "settings": {"state-dir": self.product.state_dir(self.engine)},
            "agent": {"driverRoot": self.product.driver_root, "softwareGpu": True},
        }

    def offer(
        self,
        how: str,
        settings: dict[str, str] | None = None,
        first_only: bool = False,
        **values: Any,
    ) -> None:
        """Offer the node's GPUs by the "plugin" or by "dra". settings, values: of the chart too.

        first_only: the test knows that kube-scheduler 1.34 compares a claim with the room of the
        first device of the slice, whichever it allocates (test_second_gpu.py).
        """
        if how == "dra" and self.cluster.minor < 35 and not first_only:
            pytest.skip("Kubernetes 1.34 shares no GPU but the first of a node")
        values = {**self.values(), **values}
        values["settings"] |= {"gpu-offer": how, **(settings or {})}
        values["agent"]["endsClaims"] = how == "plugin"
        self.chart.install(values)
        self.wait_rollout(AGENT)

    def divide(self, profiles: str) -> None:
        """Give the third GPU MIG devices of these profiles; "": none."""
        self.product.order("mig", "2=" + profiles)

    def roll_out_amid_pods(self, create: Callable[[str], None], count: int = 60) -> list[str]:
        """Create pods in a row, from before a rollout of the agent begins to after its end."""
        names = [f"row-{number}" for number in range(count)]
        self.kubectl("rollout", "restart", AGENT, "--namespace", NAMESPACE)
        for name in names:
            create(name)
            time.sleep(0.2)
        self.wait_rollout(AGENT)
        return names

    def wait_ended(self, names: list[str]) -> None:
        self.wait(
            lambda: set(self.phases(names).values()) <= {"Succeeded", "Failed"},
            "the end of the pods",
        )

    def restart_kubelet(self, **changes: Any) -> None:
        """Kill it, start it, and wait until the agent has registered both resources again.

        changes: of its configuration.
        """
        self._kubelet_config(**changes)
        before = self.registrations()
        self.kubelet.end(signal.SIGKILL)
        self.kubelet.start()
        self.wait(
            lambda: self.registrations() == before + 2,
            "the agent's registration with the new kubelet",
        )

    def registrations(self) -> int:
        return self.agent_log().count(": registered as ")

    def agent_log(self) -> str:
        return self.kubectl("logs", "--namespace", NAMESPACE, AGENT, "--tail=-1", check=False)

    def agent_pids(self) -> list[int]:
        """Pids of the running agents' first processes, as this host sees them."""
        parents: dict[int, int] = {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
                with open(f"/proc/{pid}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if self.host.path("image-bin", "vcuda-node-agent") in words:
                parents[pid] = parent
        return [pid for pid, parent in parents.items() if parent not in parents]

    def kill_agent(self) -> None:
        """Kill the agent's container and wait until the kubelet runs it again."""
        pid = self.signal_agent(signal.SIGKILL)
        self.wait(lambda: self.agent_pids() not in ([], [pid]), "the agent's next container")

    def move_agent(self, selector: dict[str, str | None]) -> None:
        """Change the labels of the nodes that the agent's DaemonSet is for."""
        patch = {"spec": {"template": {"spec": {"nodeSelector": selector}}}}
        self.kubectl("patch", AGENT, "--namespace", NAMESPACE, "--patch", json.dumps(patch))

    def wait_agent_ready(self) -> None:
        self.wait(lambda: bool(self._agent_status().get("numberReady")), "the agent's readiness")

    def _agent_status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get(AGENT, "--namespace", NAMESPACE)["status"]
        return found

    def as_agent(self, *words: str, stdin: str) -> str:
        """What kubectl says on standard error with the running agent's own token."""
        (pod,) = self.get("pods", "--namespace", NAMESPACE, "-l", LABEL)["items"]
        metadata = {key: pod["metadata"][key] for key in ("name", "uid")}
        spec = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", **metadata}}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/vcuda-node-agent/token"
        done = self.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(request))
        assert done.returncode == 0, done.stderr
        token = json.loads(done.stdout)["status"]["token"]
        # A certificate, as that of the administrator, would come before a token.
        about = ("--kubeconfig", "/dev/null", "--server", SERVER)
        trusted = ("--certificate-authority", self.cluster.pki + "/ca.crt", "--token", token)
        return self.cluster.kubectl(*words, *about, *trusted, stdin=stdin).stderr

    def signal_agent(self, number: int) -> int:
        """Send a signal to the agent; return its pid."""
        # One that a former test has ended may still be there, and a process without its parent.
        self.wait(lambda: len(self.agent_pids()) == 1, "the only agent")
        (pid,) = self.agent_pids()
        os.kill(pid, number)
        return pid

    def kubectl(self, *words: str, check: bool = True) -> str:
        done = self.cluster.kubectl(*words)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def run(
        self,
        name: str,
        core: int,
        memory: int,
        command: list[str] | None = None,
        restart: str = "Always",
        **spec: Any,
    ) -> None:
        """Create a pod with a share: percent of a GPU, units of 256 MiB. spec: more of its spec."""
        pod = self.pod(name, core, memory, command)
        pod["spec"] |= {"restartPolicy": restart, **spec}
        self.apply(pod)

    def pod(
        self, name: str, core: int, memory: int, command: list[str] | None = None
    ) -> dict[str, Any]:
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
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [main],
        }
        metadata = {"name": name, "namespace": "default"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def apply(self, thing: dict[str, Any]) -> None:
        done = self.cluster.kubectl(
            "create", "--validate=false", "-f", "-", stdin=json.dumps(thing)
        )
        assert done.returncode == 0, done.stderr

    def refusal(self, thing: dict[str, Any]) -> str:
        """What kubectl says of an object that the API server refuses."""
        done = self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(thing))
        assert done.returncode == 1
        return done.stderr

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

    def phases(self, names: list[str]) -> dict[str, str]:
        """By name; "": there is no such pod."""
        found = {each["metadata"]["name"]: each["status"] for each in self.get("pods")["items"]}
        return {name: str(found.get(name, {}).get("phase", "")) for name in names}

    def exec(self, name: str, *command: str) -> str:
        done = self.cluster.kubectl("exec", name, "--", *command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def vcuda(self, *words: str) -> str:
        """What the host's vcuda prints, with the administrator's KUBECONFIG."""
        command = [self.product.prefix + "/bin/vcuda", "--config", self.product.config, *words]
        path = f"{self.cluster.programs}:{PATH}"
        env = {"KUBECONFIG": self.cluster.kubeconfig("admin"), "PATH": path}
        return self.host.check(command, env=env)

    def events(self, name: str, reason: str) -> list[str]:
        """The messages of a pod's events of one reason; not those of an earlier pod of its name."""
        uid = self.get("pod", name)["metadata"]["uid"]
        selector = f"--field-selector=involvedObject.uid={uid},reason={reason}"
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

    def gpus_held(self) -> dict[str, list[str]]:
        """By pod name: the GPUs that the ledger's records say."""
        return {
            record["pod"]["name"]: [share["uuid"] for share in record["shares"]]
            for record in self.product.allocations(self.engine)
        }

    def bound(self, name: str) -> bool:
        return bool(self.get("pod", name)["spec"].get("nodeName"))

    def decided(self, name: str) -> list[str]:
        """The GPUs that the extender chose for a pod's container."""
        text = self.get("pod", name)["metadata"]["annotations"][names.ANNOTATION_DECISION]
        decision = json.loads(text)
        return [share["uuid"] for share in decision["containers"]["main"]]

    def _install(self) -> None:
        """As docs/start-kubernetes.md says, but for the images, which are here already."""
        for image in ("vcuda-node-agent", "vcuda-scheduler-extender"):
            self.engine.name_image(f"docker.io/library/{image}:{names.VERSION}")
        version = json.loads(self.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
        self.engine.name_image(f"registry.k8s.io/kube-scheduler:{version}")
        self.kubectl("apply", "-f", ROOT + "/packaging/kubernetes/namespace.yaml")
        self.kubectl("label", "node", NODE, "nvidia-device-enable=enable")
        self.chart.install(self.values())
        for what in (AGENT, EXTENDER):
            self.wait_rollout(what)

    def wait_rollout(self, what: str) -> None:
        """After an API server's absence a kubelet of 1.35 mounts older settings for a minute
        more, for which a new agent waits."""
        words = ("rollout", "status", what, "--namespace", NAMESPACE, "--timeout=50s")
        for _ in range(3):
            done = self.cluster.kubectl(*words)
            if done.returncode == 0:
                return
        raise AssertionError(done.stderr + self._trouble())

    def _trouble(self) -> str:
        words = ("get", "events,pods", "--all-namespaces", "-o", "wide")
        return self.kubectl(*words) + self.agent_log()[-4000:]

    def _main_runs(self, name: str) -> bool:
        pod = self.get("pod", name)
        statuses = pod["status"].get("containerStatuses", []) if pod else []
        return [status["name"] for status in statuses if "running" in status["state"]] == ["main"]

    def _is_ready(self) -> bool:
        node = self.get("node", NODE)
        conditions = node["status"].get("conditions", []) if node else []
        return ("Ready", "True") in [(each["type"], each["status"]) for each in conditions]

    def _kubelet_config(self, **changes: Any) -> str:
        values = {
            **KUBELET,
            **changes,
            "cgroupRoot": self.host.cgroup_parent,
            "containerRuntimeEndpoint": "unix://" + self.engine.socket,
        }
        return self.host.write("kubelet.json", json.dumps(values))

    def _prepare_host(self) -> None:
        """Its cgroup, shared mounts, vcuda's runtime, and stand-ins for what the kubelet tunes."""
        for root in cgroups.hierarchies():
            group = root + self.host.cgroup_parent
            os.makedirs(group, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if os.path.exists(f"{group}/{name}"):
                    with open(f"{root}/{name}") as above, open(f"{group}/{name}", "w") as file:
                        file.write(above.read())
        # On a host that systemd runs every mount is shared.
        root = self.product.driver_root
        folders = ["/var/lib/kubelet", "/run/containerd", "/run/runc", "/run/crun", "/run/utsns"]
        self.host.check(["mkdir", "-p", *folders])
        self.host.check(["mount", "--bind", root, root])
        for folder in (root, "/run"):
            self.host.check(["mount", "--make-shared", folder])
        self.product.configure(self.engine)
        # Where a chart's agent and the programs that it names to the engine have their settings.
        self.host.check(["mkdir", "-p", "/etc/vcuda"])
        self.host.check(["cp", self.product.config, "/etc/vcuda/config.toml"])
        self.engine.use(self.product.runtime)
        command = [self.product.prefix + "/bin/vcuda", "--config", self.product.config]
        self.engine.add_handler(command)
        self.engine.restart()
        for name, value in KERNEL.items():
            stand_in = self.host.write(name.replace("/", "-"), f"{value}\n")
            self.host.check(["mount", "--bind", stand_in, "/proc/sys/" + name])
