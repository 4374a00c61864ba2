"""A client of the API server, run inside the private host: ``python -m cluster.measure.inside``.

create FILE: create the objects of a JSON list [path, object], by several threads at once; nodes
lose the taint that they are created with. remove PATH…: delete all objects of these collections.
bindings COUNT: print WATCHING, then the monotonic time of each binding until COUNT pods are bound.
starts FILE: create the pods of a JSON list one after the other; print the seconds until each has a
node and until it is reported as Running; each is deleted before the next is created.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from support.files import ROOT
from vcuda_plugin.kube.api import KubeApi

PODS = "/api/v1/pods"
DEFAULT_PODS = "/api/v1/namespaces/default/pods"
WATCHING = "watching"
THREADS = 8
SECONDS = 600
REST_SECONDS = 1.0
_PARTS = "oci", "runtime_hook", "plugin", "tests"
ENV = {"PYTHONPATH": ":".join(f"{ROOT}/{part}" for part in _PARTS)}


def create(kubeconfig: str, file: str) -> None:
    with open(file) as text:
        pairs = json.load(text)
    api = KubeApi(kubeconfig, "tests")

    def some(first: int) -> None:
        for path, each in pairs[first::THREADS]:
            api.create(path, each)
            if each["kind"] == "Node":
                # A controller that is not running here would do it.
                api.merge(f"{path}/{each['metadata']['name']}", {"spec": {"taints": None}})

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(some, range(THREADS)))


def remove(kubeconfig: str, *paths: str) -> None:
    api = KubeApi(kubeconfig, "tests")
    now = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    for path in paths:
        status, answer = api.call("DELETE", path, now, seconds=SECONDS)
        assert status < 300, answer


def bindings(kubeconfig: str, count: str) -> None:
    api, bound = KubeApi(kubeconfig, "tests"), set[str]()
    query = {"fieldSelector": "spec.nodeName!="}
    assert not api.get(PODS, query)["items"]
    print(WATCHING, flush=True)
    # An API server ends the watch of a slow client; the next one begins with the pods that exist.
    while len(bound) < int(count):
        for _, pod in api.watch(PODS, query, SECONDS):
            if pod["metadata"]["name"] not in bound:
                print(time.monotonic(), flush=True)
                bound.add(pod["metadata"]["name"])
                if len(bound) == int(count):
                    return


def starts(kubeconfig: str, file: str) -> None:
    with open(file) as text:
        pods = json.load(text)
    api = KubeApi(kubeconfig, "tests")
    for pod in pods:
        name = pod["metadata"]["name"]
        query = {"fieldSelector": f"metadata.name={name}"}
        began, placed = time.monotonic(), 0.0
        api.create(DEFAULT_PODS, pod)
        for _, seen in api.watch(DEFAULT_PODS, query, SECONDS):
            took = time.monotonic() - began
            placed = placed or (took if seen["spec"].get("nodeName") else 0.0)
            if seen["status"].get("phase") == "Running":
                print(placed, took, flush=True)
                break
        api.call("DELETE", f"{DEFAULT_PODS}/{name}", {"gracePeriodSeconds": 0})
        while api.get(DEFAULT_PODS, query)["items"]:
            time.sleep(0.1)
        # Let the kubelet end the container, which a deletion by force does not wait for.
        time.sleep(REST_SECONDS)


VERBS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (create, remove, bindings, starts)
}

if __name__ == "__main__":
    VERBS[sys.argv[2]](sys.argv[1], *sys.argv[3:])
