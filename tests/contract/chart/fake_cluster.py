"""A cluster for kubectl and Helm: two nodes, and a loop that makes and ends pods as controllers
do."""

from __future__ import annotations

from typing import Any

from contract.chart.object_kinds import Place
from contract.chart.object_store import Object, ObjectStore

NODES = ("node-1", "foo")
# As the kubelet tells it of the agent's plugins, of a node with eight GPUs of 143,771 MiB.
CAPACITY = {"cpu": "8", "tencent.com/vcuda-core": "800", "tencent.com/vcuda-memory": "4488"}
# What the kubelet of a node would pass on.
LOG = "5120MiB\n"


class FakeCluster(ObjectStore):
    def __init__(self) -> None:
        super().__init__()
        for name in NODES:
            self.put(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": {}},
                    "status": {"capacity": CAPACITY, "allocatable": CAPACITY},
                }
            )
        # What every node has already: of a daemon, and of a program with files of its own.
        self.put(workload("DaemonSet", "network"), workload("Deployment", "shop"))

    def create(self, collection: str, made: Object) -> Object:
        made = super().create(collection, made)
        if made["kind"] in ("DaemonSet", "Deployment"):
            wanted = made["spec"]["template"]["spec"].get("nodeSelector", {}).items()
            nodes = [name for name in NODES if wanted <= self._labels(name).items()]
            for name in nodes if made["kind"] == "DaemonSet" else NODES[:1]:
                self.put(pod_of(made, name))
        return made

    def delete(self, key: str) -> Object:
        gone = super().delete(key)
        for each, pod in list(self.objects.items()):
            for owner in pod["metadata"].get("ownerReferences", []):
                if owner["uid"] == gone["metadata"]["uid"]:
                    del self.objects[each]
        return gone

    def part(self, method: str, named: Place) -> tuple[int, Any]:
        if (method, named.sub) == ("POST", "eviction") and named.key in self.objects:
            self.delete(named.key)
            return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        if (method, named.sub) == ("GET", "log") and named.key in self.objects:
            return 200, LOG
        return super().part(method, named)

    def _labels(self, node: str) -> Any:
        return self.objects[f"/api/v1/nodes/{node}"]["metadata"]["labels"]


def workload(kind: str, name: str) -> Object:
    labels = {"app": name}
    container = {"name": "main", "image": "example"}
    spec = {"containers": [container], "volumes": [{"name": "files", "emptyDir": {}}]}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def pod_of(owner: Object, node: str) -> Object:
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    name = owner["metadata"]["name"]
    template = owner["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template["metadata"],
            "name": f"{name}-{node}",
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": [
                {**reference, "name": name, "uid": owner["metadata"]["uid"], "controller": True}
            ],
        },
        "spec": {**template["spec"], "nodeName": node},
        "status": {"phase": "Running"},
    }
