"""The scheduler extender's cluster page, beside a fake API server with a small cluster."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from support.api_server.fake_api_objects import CLAIMS, SLICES
from support.api_server.fake_api_server import FakeApiServer
from support.kubelet.dra_claims import claim, result, slice_of, waiting
from support.scheduler import extender
from support.scheduler.clusters import container, gpus_of, node, pod
from vcuda_oci.model.allocation import GpuShare

H100 = "NVIDIA H100 80GB HBM3"
GIB = 1 << 30
# Namespace, pod, node, GPU, percent, GiB.
SHARES = (
    ("research", "train-llm-0", "gpu-1", 0, 60, 40),
    ("research", "notebook-ann", "gpu-1", 0, 20, 10),
    ("product", "serve-7b", "gpu-1", 1, 70, 60),
    ("product", "batch-embed", "gpu-1", 1, 20, 10),
    ("product", "serve-small", "gpu-2", 0, 50, 24),
)
# Namespace, pod, percent, GiB.
WAITING = (("research", "train-llm-1", 60, 40), ("research", "sweep-4", 10, 100))
SINCE = "2026-11-26T09:14:03Z"
# The node that offers its GPU by DRA, and the claims there: namespace, pod, percent, GiB.
OF_CLAIMS = "dra-1"
HELD = (("product", "rerank", 40, 20), ("research", "eval-nightly", 30, 16))
ASKED = (("research", "eval-large", 50, 60),)


@dataclass
class Cluster:
    """address: of the page. token: the value of the header Authorization."""

    address: str
    token: str


def _asking(core: int, gib: int) -> dict[str, Any]:
    return container(core=core, memory=4 * gib)


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    api = FakeApiServer()
    with tempfile.TemporaryDirectory() as folder, api.running():
        api.users = {"admin-token": {"username": "root", "groups": ["admins"]}}
        api.may_list = {("admins", kind, "") for kind in ("pods", "nodes", "resourceclaims")}
        for name, unhealthy in (("gpu-1", {}), ("gpu-2", {"GPU-gpu-2-1": "Xid 79"})):
            gpus = gpus_of(name, 80, 80, model=H100, unhealthy=unhealthy)
            api.put(node(name, gpus, labels={"gaia.tencent.com/gpu-model": H100.replace(" ", "-")}))
        for namespace, name, where, gpu, core, gib in SHARES:
            shares = {"main": [GpuShare(f"GPU-{where}-{gpu}", gib * GIB, core)]}
            asked = _asking(core, gib)
            api.put(pod(name, asked, node=where, shares=shares, namespace=namespace))
        for namespace, name, core, gib in WAITING:
            asks = pod(name, _asking(core, gib), namespace=namespace)
            asks["metadata"]["creationTimestamp"] = SINCE
            api.put(asks)
        _claims(api)
        words = ("--page", "127.0.0.1:0")
        with extender.ready(api, folder, *words, settings='gpu-offer = "dra"'):
            found = re.search(r"the cluster page is on (127.0.0.1:\d+)", extender.log(folder))
            assert found, extender.log(folder)
            yield Cluster(f"http://{found[1]}/", "Bearer admin-token")


def _claims(api: FakeApiServer) -> None:
    uuid = f"GPU-{OF_CLAIMS}-0"
    api.put(node(OF_CLAIMS, gpus_of(OF_CLAIMS, 80, model=H100)))
    api.set(SLICES, OF_CLAIMS, slice_of({uuid: 80}, OF_CLAIMS))
    for namespace, name, core, gib in HELD:
        made = claim(name, result(uuid, str(core), f"{gib}Gi", pool=OF_CLAIMS))
        _put(api, made, made["status"]["reservedFor"][0], namespace, name)
    for namespace, name, core, gib in ASKED:
        made = waiting(name, cores=str(core), memory=f"{gib}Gi")
        _put(api, made, made["metadata"]["ownerReferences"][0], namespace, name)


def _put(
    api: FakeApiServer, made: dict[str, Any], its_pod: dict[str, Any], namespace: str, name: str
) -> None:
    """Store a claim of the pod `name`, called as Kubernetes would call one of a template."""
    its_pod["name"] = name
    called = f"{name}-gpu-x7k2p"
    made["metadata"] |= {"namespace": namespace, "name": called, "creationTimestamp": SINCE}
    api.set(CLAIMS, f"{namespace}/{called}", made)
