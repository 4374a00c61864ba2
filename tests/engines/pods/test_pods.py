"""Containers of pods have shares of their own and retain them over restarts."""

from __future__ import annotations

from support.engines import each_cri
from support.engines.cri import Cri, Pod
from support.product import MIB, Product, asking

pytestmark = each_cri

LIMIT = 1024 * MIB


def test_a_restarted_container_gets_its_allocation_again(
    cri: Cri, product: Product, pod: Pod
) -> None:
    asked = asking(cri, core=60, memory_bytes=LIMIT)
    show = ["sh", "-c", "ls /dev | grep -x 'nvidia[0-9]'; vcuda-workload info; exit 1"]
    first = cri.start_container(pod, show, name="worker", **asked)
    assert cri.wait_for(first) == 1
    before, seen = product.allocations(cri), cri.output(pod, "worker")
    # While it is stopped another container of 60 % starts; only the other GPU has room.
    other = cri.start_container(pod, ["sleep", "100"], name="other", **asked)
    cri.remove_container(first)
    second = cri.start_container(pod, show, name="worker", **asked)
    assert cri.wait_for(second) == 1
    after = {record["id"]: record for record in product.allocations(cri)}
    assert cri.output(pod, "worker") == seen
    assert f'"total_bytes": {LIMIT}' in seen[0]
    (old,) = before
    assert after[old["id"]]["shares"] == old["shares"]
    assert after[old["id"]]["container_id"] == second
    (taken,) = (record for id, record in after.items() if id != old["id"])
    assert taken["container_id"] == other
    assert taken["shares"][0]["uuid"] != old["shares"][0]["uuid"]


def test_the_sandbox_of_a_pod_gets_nothing(cri: Cri, product: Product, pod: Pod) -> None:
    assert product.allocations(cri) == []


def test_what_a_pod_author_writes_asks_for_nothing(
    cri: Cri, product: Product, container: str
) -> None:
    words = {"VCUDA_CORE": "100", "NVIDIA_VISIBLE_DEVICES": "all"}
    with product.on(cri):
        pod = cri.run_pod(container, annotations={"vcuda.io/core": "100"})
        try:
            started = cri.start_container(pod, ["ls", "/dev"], env=words)
            assert cri.wait_for(started) == 0
            assert "nvidia" not in cri.output(pod)[0]
            assert product.allocations(cri) == []
        finally:
            cri.remove_pod(pod)


def test_two_containers_of_one_pod_have_a_share_each(cri: Cri, product: Product, pod: Pod) -> None:
    for name, core in (("first", 30), ("second", 50)):
        cri.start_container(pod, ["sleep", "100"], name=name, **asking(cri, core=core))
    records = product.allocations(cri)
    assert sorted(record["shares"][0]["core_percent"] for record in records) == [30, 50]
    assert {record["pod"]["uid"] for record in records} == {pod.uid}
    assert {record["pod"]["container"] for record in records} == {"first", "second"}
