"""What CRI-O does otherwise than containerd: annotations, hooks.d, CDI."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from engines.starts.test_container_names import vcuda
from engines.suspend.test_suspend import succeed, works
from support.engines.base import Engine
from support.engines.crio import Crio
from support.product import MIB, Product, asking
from support.suspend.notebook import NOTEBOOK, cells, used
from support.waiting import until

LIMIT = 1024 * MIB
FILL = ["vcuda-workload", "alloc", "--chunk", str(LIMIT)]
WORKS = [*NOTEBOOK[:2], "--bytes=256MiB", "--seconds=600", "--every-ms=50"]
ALL = {"vcuda.io/request.vcuda-core": "200", "vcuda.io/request.vcuda-memory": "32"}
# What a pod's author may write; CRI-O copies it to the annotations of each container.
FORGED = {
    **ALL,
    "vcuda.io/core": "200",
    "io.kubernetes.cri-o.Annotations": json.dumps(ALL),
    "io.kubernetes.cri-o.SandboxID": "other",
    "io.kubernetes.container.name": "other",
    "io.kubernetes.pod.uid": "other",
    "io.kubernetes.cri.sandbox-uid": "other",
    "io.container.manager": "libpod",
    "io.podman.annotations.init": "FALSE",
}


@pytest.fixture(params=["crio", "crio-v2"])
def crio(request: pytest.FixtureRequest, start_engine: Callable[[str], Engine]) -> Iterator[Crio]:
    started = start_engine(request.param)
    assert isinstance(started, Crio)
    with started.using(started.plain_runtime()):
        yield started


@pytest.fixture(params=["the wrapper", "hooks.d"])
def served(request: pytest.FixtureRequest, crio: Crio, product: Product) -> Iterator[Crio]:
    with product.on(crio):
        if request.param == "the wrapper":
            yield crio
            return
        hook = ["crio", "--hooks", "--config", crio.host.path("hooks.d/vcuda.json")]
        succeed(crio, product, "configure", *hook)
        with crio.using(crio.plain_runtime()):
            yield crio
        succeed(crio, product, "configure", *hook, "--undo")


def test_pods_author_gets_nothing_by_annotations_and_loses_nothing(
    served: Crio, product: Product, container: str
) -> None:
    pod = served.run_pod(container, annotations=FORGED)
    look = ["sh", "-c", "ls /dev | grep nvidia; ls /usr/local"]
    try:
        plain = served.start_container(pod, look, name="plain")
        assert served.wait_for(plain) == 1
        assert (served.output(pod, "plain")[0], product.allocations(served)) == ("", [])
        asked = asking(served, core=30, memory_bytes=LIMIT)
        full = served.start_container(pod, FILL, **asked)
        assert served.wait_for(full) == 0
        assert json.loads(served.output(pod)[0])["exact_bytes"] == LIMIT
        (record,) = product.allocations(served)
        assert record["shares"][0]["core_percent"] == 30
        found = {key: record["pod"][key] for key in ("uid", "name", "container", "sandbox_id")}
        assert found == {
            "uid": pod.uid,
            "name": container,
            "container": "main",
            "sandbox_id": pod.sandbox_id,
        }
        succeed(served, product, "release", "--all-dead")
        assert len(product.allocations(served)) == 1
    finally:
        served.remove_pod(pod)
    succeed(served, product, "release", "--all-dead")
    assert product.allocations(served) == []


def test_containers_of_a_slice_by_cdi_share_its_limit_and_leave_together(
    crio: Crio, product: Product, container: str
) -> None:
    with product.on(crio), crio.using(crio.plain_runtime()):
        succeed(crio, product, "cdi", "generate", "--slice", "train=core:30,memory:1GiB")
        pod, other = crio.run_pod(container), crio.run_pod(f"{container}-2")
        try:
            for each in (pod, other):
                crio.start_container(each, WORKS, cdi=["vcuda.io/gpu=train"])
            names = (container, f"{container}-2")
            until(lambda: all(cells(crio, name) for name in names), "both notebooks' cells")
            filled = crio.exec_in(pod.containers["main"], FILL)
            assert json.loads(filled.stdout)["exact_bytes"] == LIMIT // 2
            assert "512 MiB off" in succeed(crio, product, "suspend", "cdi@train")
            assert used(crio, product) == 0
            refused = vcuda(crio, product, "cdi", "remove", "train", "--force")
            assert (refused.rc, "is suspended" in refused.stderr) == (1, True)
            crio.restart()
            succeed(crio, product, "resume", "cdi@train")
            for name in names:
                works(crio, name)
        finally:
            crio.remove_pod(pod)
            crio.remove_pod(other)
            succeed(crio, product, "cdi", "remove", "train")
            crio.host.run(["sh", "-c", "rm -f /var/run/cdi/vcuda*.json"])
