"""How many pods a second a real kube-scheduler places on made-up nodes: alone, with the extender,
and by DRA.

    KUBEBUILDER_ASSETS=DIR make cluster-rate

The nodes are objects only: no kubelet runs, so a pod is placed when it is bound. All pods, and by
DRA their claims, exist before kube-scheduler is let go; the rate is of the time from there to the
last binding. kube-scheduler may make 1,000 calls a second. Each node has 8 GPUs of 16 GiB, each pod
asks for 10 % and 1 GiB, or for 100m of a processor only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cluster import binaries, claims
from cluster.control_plane import ControlPlane, Service
from cluster.node import CORE, MEMORY
from support.clusters import gpus_of
from support.files import ROOT
from support.private_host import PrivateHost, wait_until
from vcuda_oci.model import names
from vcuda_plugin.agent.dra import devices, slices
from vcuda_plugin.agent.gpus.inventory import Inventory
from vcuda_plugin.kube.api import KubeApi

NODES = (1, 100, 1000)
GPUS = [16] * 8
# As many as one node of 8 GPUs has room for.
PODS = 80
PODS_OF_MANY = 500
WAYS = ("none", "extender", "dra")
SECONDS = 300
LIMITS = ["--kube-api-qps=1000", "--kube-api-burst=1000"]

Object = dict[str, Any]


class Cluster:
    """A control plane with made-up nodes."""

    def __init__(self, host: PrivateHost, programs: str) -> None:
        self.host, self.programs = host, programs
        self.plane = ControlPlane(host, programs)
        for service in (self.plane.scheduler, self.plane.controllers):
            service.end(signal.SIGKILL)
        # Nodes without a kubelet stay ready: no other controller looks at them.
        self.claims = self._start(
            "kube-controller-manager",
            "controller-manager",
            "--leader-elect=false",
            "--controllers=resourceclaim-controller",
            "--secure-port=0",
            *LIMITS,
        )
        self._pool = ThreadPoolExecutor(8)

    def _start(self, program: str, account: str, *words: str) -> Service:
        path = os.path.join(self.programs, program)
        kubeconfig = "--kubeconfig=" + self.plane.kubeconfig(account)
        service = Service(self.host, program, path, kubeconfig, *words)
        self.plane.services.append(service)
        return service

    def create(self, path: str, objects: Sequence[Object]) -> None:
        """Create objects by several clients inside the host."""
        file = self.host.write("objects.json", json.dumps([path, list(objects)]))
        self.host.check(
            [sys.executable, "-m", "cluster.rate", "create", file, self.plane.kubeconfig("admin")],
            env={"PYTHONPATH": ":".join(sys.path)},
            timeout=SECONDS,
        )

    def get(self, *words: str) -> Any:
        done = self.plane.kubectl("get", "--raw", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def bound(self) -> int:
        found = self.get("/api/v1/pods?fieldSelector=spec.nodeName!=&limit=1")
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))


def create(file: str, kubeconfig: str) -> None:
    with open(file) as text:
        path, objects = json.load(text)

    def some(first: int) -> None:
        api = KubeApi(kubeconfig, "rate")
        for each in objects[first::8]:
            api.create(path, each)
            if each["kind"] == "Node":
                status = {"status": each["status"]}
                api.merge(f"{path}/{each['metadata']['name']}/status", status)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, range(8)))


def node(name: str) -> Object:
    gpus = gpus_of(name, *GPUS)
    sums = {"cpu": "64", "memory": "256Gi", "pods": "500", CORE: "800", MEMORY: str(8 * 64)}
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


def slice_of(name: str) -> Object:
    found = devices.devices(Inventory(gpus_of(name, *GPUS).gpus))
    (write,) = slices.writes(name, "", found, {})
    assert write.body
    return write.body


def pod(name: str, way: str) -> Object:
    if way == "dra":
        made = claims.pod(name, "share", ["none"], "Always")
    else:
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        limits = {CORE: "10", MEMORY: "4"} if way == "extender" else {"cpu": "100m"}
        container = {"name": "main", "image": "none", "resources": {"limits": limits}}
        made["spec"] = {"containers": [container]}
    made["spec"]["automountServiceAccountToken"] = False
    return made


def extender_words(cluster: Cluster) -> list[str]:
    """Start the extender; return kube-scheduler's configuration that calls it."""
    host = cluster.host
    config = host.write("empty.toml", "")
    words = ["--config", config, "--kubeconfig", cluster.plane.kubeconfig("admin"), "--insecure"]
    command = ["env", "PYTHONPATH=" + f"{ROOT}/oci:{ROOT}/plugin", sys.executable]
    command += ["-m", "vcuda_plugin.extender.main", *words]
    extender = Service(host, "extender", *command)
    cluster.plane.services.append(extender)
    entry = {
        "urlPrefix": "http://127.0.0.1:3456/scheduler",
        "filterVerb": "predicates",
        "prioritizeVerb": "priorities",
        "bindVerb": "bind",
        "weight": 1,
        "nodeCacheCapable": True,
        "managedResources": [{"name": CORE}, {"name": MEMORY}],
    }
    tree = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": cluster.plane.kubeconfig("scheduler"),
            "qps": 1000,
            "burst": 1000,
        },
        "leaderElection": {"leaderElect": False},
        "extenders": [entry],
    }
    ready = ["curl", "-sf", "http://127.0.0.1:3456/readyz"]
    wait_until(lambda: host.run(ready).rc == 0, "the extender, see extender.log", 60)
    return ["--config=" + host.write("scheduler.json", json.dumps(tree))]


def measure(cluster: Cluster, count: int, way: str) -> float:
    """Pods a second."""
    pods = PODS if count == 1 else PODS_OF_MANY
    all_names = [f"node-{number}" for number in range(count)]
    cluster.create("/api/v1/nodes", [node(name) for name in all_names])
    words = ["--leader-elect=false", *LIMITS]
    if way == "dra":
        cluster.create(slices.PATH, [slice_of(name) for name in all_names])
        selector = {"cel": {"expression": f'device.driver == "{claims.DRIVER}"'}}
        kind = {"apiVersion": claims.API, "kind": "DeviceClass"}
        shares = {**kind, "metadata": {"name": claims.DRIVER}, "spec": {"selectors": [selector]}}
        cluster.create("/apis/resource.k8s.io/v1/deviceclasses", [shares])
        templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
        cluster.create(templates, [claims.template("share", 10, "1Gi")])
    if way == "extender":
        words = extender_words(cluster)
    path = "/api/v1/namespaces/default/pods"
    cluster.create(path, [pod(f"pod-{number}", way) for number in range(pods)])
    if way == "dra":
        wait_until(lambda: _reserved(cluster) == pods, "the claims", SECONDS)
    scheduler = cluster._start("kube-scheduler", "scheduler", *words, "--secure-port=0")
    # It has read all nodes and pods before it is stopped; the few pods placed by then do not count.
    wait_until(lambda: cluster.bound() > 0, "the first binding", SECONDS)
    first, began = cluster.bound(), time.monotonic()
    wait_until(lambda: cluster.bound() == pods, "the last binding", SECONDS)
    rate = (pods - first) / (time.monotonic() - began)
    scheduler.end(signal.SIGKILL)
    return rate


def _reserved(cluster: Cluster) -> int:
    return len(cluster.get("/apis/resource.k8s.io/v1/resourceclaims")["items"])


@contextlib.contextmanager
def running(programs: str) -> Iterator[Cluster]:
    host = PrivateHost()
    cluster: Cluster | None = None
    try:
        cluster = Cluster(host, programs)
        yield cluster
    finally:
        for service in reversed(cluster.plane.services if cluster else []):
            service.end(signal.SIGKILL)
        host.close()


def main(arguments: Sequence[str], report: Callable[[str], object] = print) -> None:
    if arguments[:1] == ["create"]:
        create(*arguments[1:])
        return
    counts = [int(each) for each in arguments] or NODES
    for count in counts:
        for way in WAYS:
            with running(binaries.folder()) as cluster:
                report(f"{count} nodes, {way}: {measure(cluster, count, way):.0f} pods a second")


if __name__ == "__main__":
    main(sys.argv[1:])
