"""A control plane with made-up nodes, which are objects only: no kubelet runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import yaml

from cluster.kubernetes import claims
from cluster.kubernetes.control_plane import ControlPlane, Service
from cluster.kubernetes.node import CORE, MEMORY, SCHEDULER
from cluster.measure import inside
from contract.chart import rendering
from support.host.private_host import PrivateHost
from support.scheduler.clusters import gpus_of
from support.waiting import until
from vcuda_oci.model import names
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.dra import devices, slices
from vcuda_plugin.agent.gpus.inventory import Inventory

Object = dict[str, Any]

GPUS = (16,) * 8  # GiB of each
ALONE, EXTENDER, DRA = "none", "extender", "dra"
SECONDS = 600
# Calls a second, and twice as many at once: of the controller, and kube-scheduler's own default.
MANY, DEFAULT = 1000, 50
GROUP = "/apis/resource.k8s.io/v1"
CLAIMS_PATH = GROUP + "/namespaces/default/resourceclaims"
TEMPLATES_PATH = GROUP + "/namespaces/default/resourceclaimtemplates"
_LISTENS = "https://127.0.0.1:3456"


class MadeUp:
    """programs: a folder with Kubernetes' programs. close() ends every process by its own pid."""

    def __init__(self, host: PrivateHost, programs: str, nodes: int) -> None:
        self.host, self._programs = host, programs
        self._plane = ControlPlane(host, programs)
        try:
            self._prepare(nodes)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for service in reversed(self._plane.services):
            service.end(signal.SIGKILL)

    def create_pods(self, count: int, way: str) -> None:
        """Create pods, and wait for their claims. way: ALONE, EXTENDER or DRA."""
        self._create([(inside.DEFAULT_PODS, _pod(f"pod-{number}", way)) for number in range(count)])
        if way == DRA:
            until(lambda: self._count(CLAIMS_PATH) == count, "the claims", SECONDS)

    def remove_pods(self) -> None:
        paths = (inside.DEFAULT_PODS, CLAIMS_PATH)
        self.host.check(self._client("remove", *paths), env=inside.ENV, timeout=SECONDS)
        until(lambda: not any(map(self._count, paths)), "the end of pods and claims", SECONDS)

    def place(self, count: int, way: str, calls: int) -> tuple[list[float], dict[str, float]]:
        """Let kube-scheduler place `count` pods; it may make this many calls a second.

        Return the monotonic time of each binding, and the processor time of each program from
        kube-scheduler's start on, in seconds.
        """
        extender = self._start_extender() if way == EXTENDER else None
        watch = subprocess.Popen(
            self.host.inside(self._client("bindings", str(count))),
            env=self.host.environment(inside.ENV),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watch.stdout
        assert watch.stdout.readline().strip() == inside.WATCHING
        before = self._used()
        config = "--config=" + self._scheduler_config(way, calls)
        scheduler = self._start("kube-scheduler", config, "--secure-port=0")
        try:
            printed, _ = watch.communicate(timeout=SECONDS)
            used = {name: after - before.get(name, 0) for name, after in self._used().items()}
        finally:
            watch.kill()
            for service in (scheduler, extender):
                if service:
                    service.end(signal.SIGKILL)
                    self._plane.services.remove(service)
        return [float(line) for line in printed.splitlines()], used

    def _used(self) -> dict[str, float]:
        """Seconds of processor time of each program that runs."""
        found = {}
        for service in self._plane.services:
            with contextlib.suppress(OSError):
                with open(f"/proc/{service.pid()}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
                ticks = int(fields[11]) + int(fields[12])
                found[service.name] = ticks / os.sysconf("SC_CLK_TCK")
        return found

    def _prepare(self, nodes: int) -> None:
        for service in (self._plane.scheduler, self._plane.controllers):
            service.end(signal.SIGKILL)
            self._plane.services.remove(service)
        # No other controller looks at the nodes: they stay ready without a kubelet.
        self._start(
            "kube-controller-manager",
            "--kubeconfig=" + self._plane.kubeconfig("controller-manager"),
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            "--controllers=resourceclaim-controller,serviceaccount-controller",
            "--secure-port=0",
            *(f"--kube-api-{what}={MANY}" for what in ("qps", "burst")),
        )
        account = ("get", "serviceaccount", "default")
        until(lambda: not self._plane.kubectl(*account).returncode, "the account", 60)
        self._tls = self.host.path("tls")
        self.host.check([*_extender_program(), "certificates", self._tls], env=inside.ENV)
        kinds = [each for each in rendering.objects(rendering.DRA) if each["kind"] == "DeviceClass"]
        template = claims.template("share", 1, "256Mi")
        everything = [(GROUP + "/deviceclasses", each) for each in kinds]
        everything.append((TEMPLATES_PATH, template))
        for name in (f"node-{number}" for number in range(nodes)):
            everything += [("/api/v1/nodes", _node(name)), (slices.PATH, _slice(name))]
        self._create(everything)

    def _start(self, program: str, *words: str) -> Service:
        service = Service(self.host, program, os.path.join(self._programs, program), *words)
        self._plane.services.append(service)
        return service

    def _client(self, *words: str) -> list[str]:
        kubeconfig = self._plane.kubeconfig("admin")
        return [sys.executable, "-m", "cluster.measure.inside", kubeconfig, *words]

    def _create(self, objects: Sequence[tuple[str, Object]]) -> None:
        file = self.host.write("objects.json", json.dumps(objects))
        self.host.check(self._client("create", file), env=inside.ENV, timeout=SECONDS)

    def _count(self, path: str) -> int:
        done = self._plane.kubectl("get", "--raw", path)
        assert done.returncode == 0, done.stderr
        return len(json.loads(done.stdout)["items"])

    def _start_extender(self) -> Service:
        """As the chart does in mode "own", but without agents, which no node has."""
        config = self.host.write("empty.toml", "")
        kubeconfig = self._plane.kubeconfig("admin")
        words = ["--config", config, "--kubeconfig", kubeconfig, "--evict"]
        files = {"cert": "server.crt", "key": "server.key", "client-ca": "ca.crt"}
        words += [f"--tls-{option}={self._tls}/{file}" for option, file in files.items()]
        variables = [f"{key}={value}" for key, value in inside.ENV.items()]
        extender = Service(self.host, "extender", "env", *variables, *_extender_program(), *words)
        self._plane.services.append(extender)
        ready = ["curl", "-sf", "--cacert", self._tls + "/ca.crt", _LISTENS + "/readyz"]
        ready += ["--cert", self._tls + "/client.crt", "--key", self._tls + "/client.key"]
        until(lambda: self.host.run(ready).rc == 0, "the extender, see extender.log", 60)
        return extender

    def _scheduler_config(self, way: str, calls: int) -> str:
        """That of the chart; for the other ways without the extender."""
        found = rendering.one(rendering.objects(), "ConfigMap", rendering.EXTENDER)
        tree = yaml.safe_load(found["data"]["scheduler.yaml"].replace("/etc/vcuda-tls", self._tls))
        kubeconfig = self._plane.kubeconfig("scheduler")
        tree["leaderElection"] = {"leaderElect": False}
        tree["clientConnection"] = {"kubeconfig": kubeconfig, "qps": calls, "burst": 2 * calls}
        if way != EXTENDER:
            del tree["extenders"]
        return self.host.write("scheduler.json", json.dumps(tree))


def _extender_program() -> list[str]:
    return [sys.executable, "-m", "vcuda_plugin.extender.main"]


def _node(name: str) -> Object:
    gpus = gpus_of(name, *GPUS)
    sums = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
    sums |= {CORE: str(100 * len(GPUS)), MEMORY: str(4 * sum(GPUS))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {names.ANNOTATION_NODE_GPUS: gpus.dump()}},
        "status": {
            "capacity": sums,
            "allocatable": sums,
            "conditions": [{"type": "Ready", "status": "True", "reason": "made up"}],
        },
    }


def _slice(name: str) -> Object:
    (write,) = slices.writes(
        name, "", devices.devices(Inventory(gpus_of(name, *GPUS).gpus), Rules()), {}
    )
    assert write.body
    return write.body


def _pod(name: str, way: str) -> Object:
    pod = claims.pod(name, "share", ["none"], "Always")
    pod["spec"]["schedulerName"] = SCHEDULER
    if way != DRA:
        del pod["spec"]["resourceClaims"]
        limits = {CORE: "1", MEMORY: "1"} if way == EXTENDER else {"cpu": "100m"}
        pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod
