"""The agent's samples of workloads: by owner, kept over restarts and kills."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.agent.agent_pages import ON_ALL, POD, samples
from support.files import write
from support.ledger.samples import GIB, gpus
from support.ledger.tenants import Tenants
from vcuda_hook.advice import demands, recommend
from vcuda_hook.advice.demand import DAY_SECONDS, Demand, Sample
from vcuda_hook.advice.workload import Workload
from vcuda_hook.names.engine_files import Described
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.suspension import SUSPENDED, Suspension
from vcuda_plugin.agent.http import exposition, history
from vcuda_plugin.agent.http.event_counts import EventCounts
from vcuda_plugin.agent.http.http_server import Request
from vcuda_plugin.agent.http.node_state import Node, View
from vcuda_plugin.agent.http.routes import Routes
from vcuda_plugin.agent.http.workload_demands import WorkloadDemands
from vcuda_plugin.kube.node_gpus import NodeGpus

TRAIN = Workload("Deployment", "ml", "train", "main")
SHARES = [GpuShare("GPU-0", 8 * GIB, 50)]


@pytest.fixture
def tenants(tmp_path: Any) -> Iterator[Tenants]:
    node = Tenants(str(tmp_path))
    os.makedirs(node.state_dir + "/http")
    yield node
    node.close()


def looked(tenants: Tenants, **described: Described) -> View:
    node = Node("node-1", tenants.state_dir)
    node.described = described
    node.known = NodeGpus(gpus(16))
    return asyncio.run(node.view())


def noted(kept: WorkloadDemands, view: View, at: float) -> None:
    asyncio.run(kept.add(view._replace(taken=at)))


def pod(tenants: Tenants, uid: str, name: str, owner: str = "Deployment/train") -> str:
    id = f"pod-{uid}.main"
    tenants.add_record(id, shares=SHARES, pod={**POD, "uid": uid, "name": name})
    os.makedirs(tenants.state_dir + "/decisions", exist_ok=True)
    write(f"{tenants.state_dir}/decisions/{uid}.json", Decision(owner=owner).dump())
    return id


def test_pods_of_one_owner_are_one_workload_before_and_after(tenants: Tenants) -> None:
    kept = WorkloadDemands(tenants.state_dir)
    for number, held in enumerate((2, 5)):
        tenants.uses(pod(tenants, f"u{number}", f"train-5c9f-{number}"), held=held * GIB)
    noted(kept, looked(tenants), 1000.0)
    with tenants.ledger:
        tenants.ledger.remove("pod-u1.main")
    noted(kept, looked(tenants), 1010.0)
    assert kept.demands.keys() == {TRAIN}
    assert kept.demands[TRAIN].peaks == [[0, 5 * GIB]]
    assert kept.demands[TRAIN].samples == 3


def test_an_engines_container_is_known_by_image_and_name(tenants: Tenants) -> None:
    for id in ("a" * 64, "b" * 64, "run-3f2a"):
        tenants.add_record(id, shares=SHARES)
        tenants.uses(id, held=GIB)
    kept = WorkloadDemands(tenants.state_dir)
    noted(kept, looked(tenants, **{"a" * 64: Described("nb", "ml/nb:1")}), 0.0)
    found = {(each.kind, each.name, each.image) for each in kept.demands}
    assert found == {("Container", "nb", "ml/nb:1"), ("Container", "run-3f2a", "")}


def test_a_named_slice_and_a_page_that_says_nothing_are_no_workload(tenants: Tenants) -> None:
    tenants.add_record("cdi@train", container_id="", runtime=[])
    tenants.add_record("box")
    os.truncate(tenants.page("box"), 0)
    kept = WorkloadDemands(tenants.state_dir)
    noted(kept, looked(tenants), 0.0)
    assert kept.demands == {}


def test_refusals_are_counted_from_the_first_sample_and_over_a_restart(tenants: Tenants) -> None:
    tenants.uses(pod(tenants, "u", "train-5c9f-0"), held=7 * GIB, refusals=5)
    kept = WorkloadDemands(tenants.state_dir)
    for at, refusals in enumerate((5, 7, 7, 1)):
        tenants.uses("pod-u.main", held=7 * GIB, refusals=refusals)
        noted(kept, looked(tenants), float(at))
    assert kept.demands[TRAIN].refused == 2 + 1
    assert kept.demands[TRAIN].peaks == [[0, int(8 * GIB * 1.2)]]


def test_a_suspended_container_still_needs_its_memory(tenants: Tenants) -> None:
    off = Suspension(SUSPENDED, "order", 1.5, {"GPU-0": 6 * GIB})
    tenants.add_record("box", shares=SHARES, suspension=off)
    tenants.uses("box", held=6 * GIB)
    kept = WorkloadDemands(tenants.state_dir)
    noted(kept, looked(tenants), 0.0)
    assert kept.demands[Workload("Container", "", "box")].peaks == [[0, 6 * GIB]]


def test_demands_outlive_the_process_that_took_them(tenants: Tenants) -> None:
    tenants.uses(pod(tenants, "u", "train-5c9f-0"), held=2 * GIB)
    kept = WorkloadDemands(tenants.state_dir)
    noted(kept, looked(tenants), 5.0)
    kept.save()
    again = WorkloadDemands(tenants.state_dir)
    assert again.demands[TRAIN].as_json() == kept.demands[TRAIN].as_json()
    noted(again, looked(tenants), 15.0)
    assert again.demands[TRAIN].samples == 2


@pytest.mark.parametrize("text", ["", "{", '{"version":1,"workloads":[[[],{}]]}', "[]"])
def test_a_damaged_file_begins_anew(tenants: Tenants, text: str) -> None:
    write(f"{tenants.state_dir}/{demands.FILE}", text)
    kept = WorkloadDemands(tenants.state_dir)
    assert kept.demands == {}
    kept.save()
    assert WorkloadDemands(tenants.state_dir).demands == {}


def full() -> dict[Workload, Demand]:
    """As many workloads as there may be, with all buckets that real figures fill."""
    found = {}
    for number in range(demands.MOST_WORKLOADS):
        of = Demand()
        for step in range(100):
            of.add(Sample(8 * GIB, 50, step << 27, step, 0.0), step * DAY_SECONDS / 3)
        found[Workload("Deployment", "namespace", f"workload-{number}", "main")] = of
    return found


def test_a_full_file_stays_below_its_bound() -> None:
    text = demands.dump(full())
    assert len(text) < demands.MOST_BYTES / 2
    assert len(demands.parse(text)) == demands.MOST_WORKLOADS


def test_a_writer_killed_at_any_moment_leaves_a_whole_file(tenants: Tenants) -> None:
    kept = WorkloadDemands(tenants.state_dir)
    kept.demands = dict(list(full().items())[:50])
    kept.save()
    chosen = random.Random(20)
    for _ in range(20):
        child = os.fork()
        if child == 0:
            try:
                while True:
                    kept.save()
            finally:
                os._exit(1)
        time.sleep(chosen.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert len(WorkloadDemands(tenants.state_dir).demands) == 50
    kept.save()
    assert os.listdir(tenants.state_dir + "/http") == ["demands.json"]


def test_the_history_samples_and_the_page_shows_what_is_recommended(
    tenants: Tenants, monkeypatch: Any
) -> None:
    monkeypatch.setattr(history, "STEP_SECONDS", 0.01)
    monkeypatch.setattr(recommend, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(recommend, "LEAST_SAMPLES", 1)
    tenants.uses(pod(tenants, "u", "train-5c9f-0"), held=2 * GIB, busy_ns=1, refusals=0)
    node = Node("n", tenants.state_dir)
    node.known = NodeGpus(gpus(16))
    routes = Routes(node, EventCounts(tenants.state_dir), ON_ALL)

    async def page() -> bytes:
        sampling = asyncio.ensure_future(routes.history.run())
        while not routes.demands.recommended():
            await asyncio.sleep(0.01)
        sampling.cancel()
        return (await routes.answer(Request("/metrics", {}))).body

    found = samples(asyncio.run(page()))
    labels = frozenset(
        {"kind": "Deployment", "namespace": "ml", "workload": "train", "container": "main",
         "image": ""}.items()
    )  # fmt: skip
    assert found["vcuda_recommended_memory_bytes", labels] == 2.5 * GIB
    assert found["vcuda_recommended_seen_seconds", labels] == 86_400
    assert ("vcuda_recommended_compute_ratio", labels) not in found


def test_only_workloads_that_run_are_on_the_page(tenants: Tenants) -> None:
    kept = WorkloadDemands(tenants.state_dir)
    kept.demands = dict(list(full().items())[:3])
    noted(kept, looked(tenants), 0.0)
    page = exposition.Pages().text(looked(tenants), EventCounts(tenants.state_dir).read())
    assert kept.recommended() == []
    assert b"vcuda_recommended_seen_seconds{" not in page
