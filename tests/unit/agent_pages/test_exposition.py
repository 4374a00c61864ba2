"""The page of metrics, parsed by Prometheus' client library and checked by promtool."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_parsed,
)
from prometheus_client.parser import text_string_to_metric_families as parsed

from support.agent.agent_pages import POD, Samples, samples
from support.files import ROOT
from support.ledger.samples import GIB, gpus
from support.ledger.tenants import Tenants
from support.needed import skip_or_fail
from vcuda_hook.advice import recommend
from vcuda_hook.advice.demand import Demand, Sample
from vcuda_hook.advice.workload import Workload
from vcuda_hook.live import driver_figures
from vcuda_hook.live.driver_figures import Counted
from vcuda_hook.names.engine_files import Described
from vcuda_oci.fences import mps_folder
from vcuda_oci.ledger import instance_records, liveness
from vcuda_oci.ledger.instance_records import Held
from vcuda_oci.model import policies
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.suspension import SUSPENDED, Suspension
from vcuda_plugin.agent.gpus import sensors
from vcuda_plugin.agent.http import exposition, metrics, usage_page
from vcuda_plugin.agent.http.event_counts import Counts
from vcuda_plugin.agent.http.node_state import Node, View
from vcuda_plugin.kube.node_gpus import NodeGpus


@pytest.fixture
def tenants() -> Iterator[Tenants]:
    folder = tempfile.mkdtemp()  # a short path: sockets of MPS lie below it
    node = Tenants(folder)
    yield node
    node.close()
    shutil.rmtree(folder)


def look(tenants: Tenants, *memory_gib: int, image: str = "") -> View:
    node = Node("node-1", tenants.state_dir)
    node.sensors = {"GPU-0": dict.fromkeys(sensors.KEYS, 1.5)} if image else {}
    node.described = {"pod-u.main": Described("ml/train-0/main", image)} if image else {}
    node.known = NodeGpus(gpus(*memory_gib), unhealthy={"GPU-1": "Xid 79"})
    return asyncio.run(node.view())


def of(found: Samples, name: str, **labels: str) -> float | None:
    """The value of the one sample with these labels among others; None: there is none."""
    values = [
        value
        for (known, its), value in found.items()
        if known == name and labels.items() <= dict(its).items()
    ]
    assert len(values) < 2
    return values[0] if values else None


def test_a_container_has_metrics_under_gpumanagers_names_and_ours(tenants: Tenants) -> None:
    shares = [GpuShare("GPU-0", 16 * GIB, 100), GpuShare("GPU-1", 4 * GIB, 30)]
    tenants.add_record("pod-u.main", shares=shares, pod=POD)
    tenants.uses(
        "pod-u.main",
        1,
        held=3 * GIB,
        contexts=2,
        refusals=7,
        launches=9,
        busy_ns=4_500_000_000,
        throttled_ns=2_000_000_000,
        overrun_ns=250_000_000,
        room_asked=5,
    )
    found = samples(exposition.Pages().text(look(tenants, 16, 16), Counts()))
    owner = {
        "pod_name": "train-0", "namespace": "ml", "node": "node-1", "container_name": "main"
    }  # fmt: skip
    gpumanagers = {
        (name, its.get("gpu") or its.get("gpu_memory") or its["req_of_gpu" + kind]): value
        for (name, labels), value in found.items()
        for its in [dict(labels)]
        for kind in ["_memory" if "req_of_gpu_memory" in its else ""]
        if name.startswith("container_") and owner.items() <= its.items()
    }
    assert gpumanagers == {
        ("container_gpu_utilization", "gpu0"): 0,
        ("container_gpu_utilization", "gpu1"): 0,
        ("container_gpu_utilization", "total"): 0,
        ("container_gpu_memory_total", "gpu0"): 0,
        ("container_gpu_memory_total", "gpu1"): 3072,
        ("container_gpu_memory_total", "total"): 3072,
        ("container_request_gpu_utilization", "total"): 1.3,
        ("container_request_gpu_memory", "total"): 20 * 1024,
    }
    mine = {
        "allocation": "pod-u.main", "namespace": "ml", "pod": "train-0", "container": "main",
        "gpu": "GPU-1",
    }  # fmt: skip
    ours = {
        name.removeprefix("vcuda_container_"): value
        for (name, labels), value in found.items()
        if dict(labels) == mine
    }
    assert ours == {
        "memory_limit_bytes": 4 * GIB,
        "memory_used_bytes": 3 * GIB,
        "memory_refusals_total": 7,
        "memory_full_gpu_total": 5,
        "compute_reserved_ratio": 0.3,
        "compute_ceiling_ratio": 0.3,
        "compute_ratio": 0,
        "compute_seconds_total": 4.5,
        "throttled_seconds_total": 2,
        "overrun_seconds": 0.25,
        "suspended": 0,
        "suspended_bytes": 0,
        "suspended_since_seconds": 0,
        "launches_total": 9,
        "contexts": 2,
        "usage_told": 1,
    }
    assert of(found, "vcuda_gpu_healthy", gpu="GPU-0") == 1
    assert of(found, "vcuda_gpu_healthy", gpu="GPU-1") == 0
    assert of(found, "vcuda_gpu_memory_promised_bytes", gpu="GPU-1") == 4 * GIB


def test_a_suspended_container_holds_its_memory_off_the_gpu(tenants: Tenants) -> None:
    since = time.time() - 7200.5
    off = Suspension(SUSPENDED, "order", since, {"GPU-0": 3 * GIB})
    tenants.add_record("box", shares=[GpuShare("GPU-0", 4 * GIB, 30)], suspension=off)
    tenants.uses("box", held=3 * GIB)
    view = look(tenants, 16)
    found = samples(exposition.Pages().text(view, Counts()))
    figures = {
        name: of(found, f"vcuda_container_{name}", allocation="box")
        for name in ("suspended", "suspended_bytes", "suspended_since_seconds", "memory_used_bytes")
    }
    assert list(figures.values()) == [1, 3 * GIB, since, 0]
    assert view.gpus
    assert (view.gpus[0]["free_core_percent"], view.gpus[0]["tenants"]) == (70, 1)
    assert view.gpus[0]["promised_memory_bytes"] == 4 * GIB
    assert b"suspended 2h, 3 GiB on host" in usage_page.render(view)


def test_turns_are_exported_as_totals_by_reason_where_a_keeper_writes_them(
    tenants: Tenants,
) -> None:
    for id, gpu in (("a", "GPU-0"), ("later", "GPU-0"), ("other", "GPU-1")):
        tenants.add_record(id, shares=[GpuShare(gpu, GIB, 20)])
    s = 1_000_000_000
    totals = {"a": (5 * s, 6 * s, 7 * s, 2 * s), "ended": (s, s, s, 2 * s)}
    tenants.turns(9 * s, totals, lost_ns=4 * s)
    found = samples(exposition.Pages().text(look(tenants, 16, 16), Counts()))
    of_turns = {
        (name.removeprefix("vcuda_"), its.get("allocation"), its["gpu"], its.get("reason")): value
        for (name, labels), value in found.items()
        for its in [dict(labels)]
        if re.search("(held|lost|gpu_waited)_seconds", name)
    }
    assert of_turns == {
        ("container_gpu_held_seconds_total", "a", "GPU-0", None): 5,
        ("container_gpu_waited_seconds_total", "a", "GPU-0", "turn"): 6,
        ("container_gpu_waited_seconds_total", "a", "GPU-0", "share"): 7,
        ("container_gpu_lost_seconds_total", "a", "GPU-0", None): 2,
        ("gpu_lost_seconds_total", None, "GPU-0", None): 4,
    }


def test_a_tenant_that_scribbles_over_its_page_loses_its_own_figures_only(
    tenants: Tenants,
) -> None:
    for id in ("boasts", "garbles", "empties", "honest"):
        tenants.add_record(id, shares=[GpuShare("GPU-0", GIB, 20)])
    tenants.uses("boasts", held=2**64 - 1, refusals=2**64 - 1)
    tenants.uses("honest", held=GIB, refusals=2**64 - 1, busy_ns=2**64 - 1)
    with open(tenants.page("garbles"), "wb") as page:
        page.write(b"\xff" * 100_000)
    open(tenants.page("empties"), "w").close()
    found = samples(exposition.Pages().text(look(tenants, 16), Counts()))
    for id in ("boasts", "garbles", "empties"):
        mine = {name for name, labels in found if ("allocation", id) in labels}
        assert mine == {
            "vcuda_container_memory_limit_bytes",
            "vcuda_container_compute_reserved_ratio",
            "vcuda_container_compute_ceiling_ratio",
            "vcuda_container_isolation",
            "vcuda_container_suspended",
            "vcuda_container_suspended_bytes",
            "vcuda_container_suspended_since_seconds",
            "vcuda_container_usage_told",
        }
        assert of(found, "vcuda_container_usage_told", allocation=id) == 0
    assert of(found, "vcuda_container_memory_used_bytes", allocation="honest") == GIB


HOSTILE = 'a"b\\c\nd}{,=\x00\x1b[31m\u202e\ud800é' + "x" * 5000


def test_names_of_every_odd_character_stay_in_their_label(tenants: Tenants) -> None:
    pod = {**POD, "name": HOSTILE, "container": 'm"} 1\nvcuda_gpu_healthy{gpu="GPU-0"} 0'}
    tenants.add_record("odd", pod=pod)
    tenants.add_record("other", pod=POD)
    found = samples(exposition.Pages().text(look(tenants, 16), Counts()))
    shown = 'a"b\\c?d}{,=??[31m??é' + "x" * 236
    container = pod["container"].replace("\n", "?")
    assert of(found, "vcuda_container_usage_told", pod=shown, container=container) == 1
    assert of(found, "vcuda_gpu_healthy", gpu="GPU-0") == 1
    assert of(found, "container_gpu_memory_total", pod_name=shown, gpu_memory="total") == 0


def test_recreated_pod_of_the_same_name_is_one_series(tenants: Tenants) -> None:
    """Prometheus drops a page with a duplicate series."""
    for uid, created in (("old", 1000.0), ("new", 2000.0)):
        shares = [GpuShare("GPU-0", GIB, 10 if uid == "old" else 20)]
        tenants.add_record(
            f"pod-{uid}.main", shares=shares, pod={**POD, "uid": uid}, created=created
        )
    found = samples(exposition.Pages().text(look(tenants, 16), Counts()))
    assert of(found, "container_request_gpu_utilization") == 0.2


@pytest.mark.parametrize("known", [None, NodeGpus([])], ids=["not known yet", "none"])
def test_node_without_gpus_or_containers_has_a_complete_page(
    tenants: Tenants, known: NodeGpus | None
) -> None:
    node = Node("node-1", tenants.state_dir)
    node.known = known
    found = samples(exposition.Pages().text(asyncio.run(node.view()), Counts()))
    assert of(found, "vcuda_build_info") == 1
    assert {name for name, _ in found if "container_" in name or "gpu_" in name} == set()


def test_incremental_page_equals_a_newly_built_one(tenants: Tenants) -> None:
    pages = exposition.Pages()
    for turn, names in enumerate((["a"], ["a", "b"], ["a", "b"], ["b"])):
        for id in ("a", "b"):
            if id in names:
                tenants.add_record(id, shares=[GpuShare("GPU-0", GIB, 20 + turn)])
                tenants.uses(id, held=turn << 20)
            else:
                with tenants.ledger:
                    tenants.ledger.remove(id)
        view, counts = look(tenants, 16, 16), Counts()
        counts.add({"kind": "claimed", "seconds": turn})
        assert pages.text(view, counts) == exposition.Pages().text(view, counts)


def test_exemplars_name_each_buckets_last_allocation_unless_the_name_is_too_long(
    tenants: Tenants,
) -> None:
    counts = Counts()
    for id, seconds, at in (
        ("a", 0.004, 5.0),
        ("b", 0.003, 6.5),
        ("c", 0.3, 7.0),
        ("d" * 119, 9, 8),
    ):
        counts.add({"kind": "claimed", "allocation": id, "seconds": seconds, "time": at})
    page = exposition.open_metrics_page(look(tenants, 16), counts).decode()
    (family,) = [f for f in open_metrics_parsed(page) if f.name == "vcuda_start_seconds"]
    exemplars = [(s.labels["le"], s.exemplar) for s in family.samples if s.exemplar]
    assert {le: (one.labels, one.value, float(one.timestamp)) for le, one in exemplars} == {
        "0.005": ({"allocation": "b"}, 0.003, 6.5),
        "0.5": ({"allocation": "c"}, 0.3, 7.0),
    }
    assert "# {" not in exposition.Pages().text(look(tenants, 16), counts).decode()


def whole_page(tenants: Tenants) -> bytes:
    """A page on which every metric has a sample."""
    elastic = GpuShare("GPU-0", GIB, 20, policies.ELASTIC, 50)
    tenants.add_record("pod-u.main", pod=POD, shares=[elastic])
    tenants.uses("pod-u.main", held=GIB)
    tenants.turns(1, {"pod-u.main": (1, 2, 3, 4)})
    under_mps(tenants, clients=3)
    driver_figures.write(tenants.state_dir, {("pod-u.main", "GPU-0"): Counted(GIB, GIB >> 4)})
    counts = Counts()
    counts.add({"kind": "claimed", "seconds": 0.02})
    counts.add({"kind": "refused", "text": "largest free share is"})
    of = Demand()
    for number in range(recommend.LEAST_SAMPLES + 1):
        of.add(Sample(8 * GIB, 50, GIB, 10, 0), number * 1000.0)
    advised = [(Workload("Deployment", "ml", "train", "main"), recommend.recommend(of))]
    return exposition.Pages().text(look(tenants, 16, image="a.example/b:1"), counts, advised)


def under_mps(tenants: Tenants, clients: int) -> None:
    """As if a daemon served the first GPU; this process stands for it."""
    folder = mps_folder.folder_of(tenants.state_dir, "GPU-0")
    own = [os.getpid(), liveness.start_time(os.getpid())]
    mps_folder.want(tenants.state_dir, "GPU-0", "/usr/bin/x", "/usr/lib", "")
    mps_folder.write_ready(folder, mps_folder.Ready(own, own, []))
    mps_folder.write_seen(folder, clients, fault=True)


@pytest.mark.parametrize(
    ("limit", "held", "used"),
    # The driver does not count managed memory.
    [(GIB, 3, GIB >> 4), (2 * GIB, 3, 3), (GIB, GIB >> 1, GIB >> 1)],
    ids=["the share", "more", "managed"],
)
def test_the_drivers_figure_is_the_least_use_where_its_limit_is_the_share(
    tenants: Tenants, limit: int, held: int, used: int
) -> None:
    tenants.add_record("box", shares=[GpuShare("GPU-0", GIB, 30)])
    tenants.uses("box", held=held)
    driver_figures.write(tenants.state_dir, {("box", "GPU-0"): Counted(limit, GIB >> 4)})
    found = samples(exposition.Pages().text(look(tenants, 16), Counts()))
    figures = [
        of(found, f"vcuda_container_{name}", allocation="box")
        for name in ("memory_used_bytes", "driver_memory_limit_bytes", "driver_memory_used_bytes")
    ]
    assert figures == [used, limit, GIB >> 4]
    long_ago = time.time() - 60
    os.utime(f"{tenants.state_dir}/driver_limits.json", (long_ago, long_ago))
    assert driver_figures.read(tenants.state_dir) == {}


def test_mps_and_instances_are_told_of_their_gpu(tenants: Tenants) -> None:
    tenants.add_record("made", shares=[GpuShare("MIG-0", GIB, 100)], isolation="mig")
    for id, uuid in (("made", "MIG-0"), ("left", "MIG-1")):
        held = Held(id, "GPU-0", 19, 0, 1, [], "/lib/nvml", uuid)
        os.makedirs(f"{tenants.state_dir}/instances", exist_ok=True)
        instance_records.write(tenants.state_dir, held)
    under_mps(tenants, clients=2)
    found = samples(exposition.Pages().text(look(tenants, 16), Counts()))
    told = {name.removeprefix("vcuda_"): value for (name, _), value in found.items()}
    assert (told["gpu_instances"], told["gpu_instances_left_over"]) == (2, 1)
    assert [told[f"gpu_mps_{word}"] for word in ("serves", "fault", "clients")] == [1, 1, 2]
    (labels,) = [dict(each) for name, each in found if name == "vcuda_container_isolation"]
    assert (labels["isolation"], labels["instance_of"]) == ("mig", "GPU-0")


def test_promtool_finds_nothing_but_gpumanagers_name(tenants: Tenants) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        skip_or_fail("promtool is not installed")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=whole_page(tenants), capture_output=True
    )
    assert done.stderr.decode().splitlines() == [
        'container_gpu_memory_total non-counter metrics should not have "_total" suffix'
    ]


def test_every_metric_is_in_its_document_as_it_is(tenants: Tenants) -> None:
    with open(ROOT + "/docs/metrics.md") as file:
        rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*) \|$", file.read(), re.MULTILINE)
    assert sorted(rows) == sorted(
        (
            metric.name,
            metric.kind,
            " ".join(f"`{label}`" for label in metric.labels) or "none",
            metric.help,
        )
        for metric in metrics.METRICS
    )
    families = {family.name: family for family in parsed(whole_page(tenants).decode())}
    for metric in metrics.METRICS:
        family = families.get(metric.name) or families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert {frozenset(sample.labels) - {"le"} for sample in family.samples} == {
            frozenset(metric.labels)
        }
