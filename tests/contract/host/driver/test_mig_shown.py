"""A tenant of two MIG devices of one GPU is shown with both, each by its own name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from contract.host.cli.test_top import Node as Top
from support.agent.agent_pages import POD, ParsedPage, samples
from support.gpu.mig_tables import profiles
from support.ledger.samples import GIB
from support.scheduler.clusters import SETTINGS
from support.softgpu.softgpu_host import SoftGpu
from vcuda_oci.host import host
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.agent.gpus.inventory import Inventory
from vcuda_plugin.agent.http import exposition, graph_page, usage_page
from vcuda_plugin.agent.http.event_counts import Counts
from vcuda_plugin.agent.http.http_child import HttpChild
from vcuda_plugin.agent.http.node_state import Node, View
from vcuda_plugin.kube import node_gpus
from vcuda_plugin.kube.node_gpus import NodeGpus


class Divided:
    """small, large: the UUIDs of the MIG devices of its second GPU, which the tenant holds."""

    def __init__(self, folder: Path) -> None:
        gpu = SoftGpu(folder, "--gpus", "2", "--memory", "16GiB", "--mig", "1=1g.4gb,2g.8gb")
        self.gpus = host.load(str(gpu.root), str(folder / "host.json")).gpus
        self.top = Top(str(folder), SimpleNamespace(path=str(gpu.root)))
        self.small, self.large = (gpu.uuid for gpu in self.gpus if gpu.mig)
        shares = [GpuShare(self.small, 2 * GIB, 20), GpuShare(self.large, 6 * GIB, 50)]
        tenants = self.top.tenants
        tenants.add_record("pod-u.main", pod=POD, shares=shares)
        for at, held in enumerate((1 * GIB, 3 * GIB)):
            tenants.uses("pod-u.main", at, held=held)

    def view(self, known: bool = True) -> View:
        node = Node("node-1", self.top.tenants.state_dir)
        node.known = NodeGpus(self.gpus if known else [])
        return asyncio.run(node.view())


@pytest.fixture
def divided(tmp_path: Path) -> Iterator[Divided]:
    made = Divided(tmp_path)
    yield made
    made.top.close()


def by_gpu(view: View, name: str, label: str) -> dict[str, float]:
    page = samples(exposition.Pages().text(view, Counts()))
    return {dict(its)[label]: value for (known, its), value in page.items() if known == name}


def test_each_metric_has_both_and_their_sum(divided: Divided) -> None:
    view, small, large = divided.view(), divided.small, divided.large
    assert by_gpu(view, "vcuda_container_memory_used_bytes", "gpu") == {small: GIB, large: 3 * GIB}
    assert by_gpu(view, "vcuda_gpu_tenants", "index") == {"0": 0, "1": 0, "1:0": 1, "1:1": 1}
    memory = {"gpu1:0": 1024, "gpu1:1": 3072, "total": 4096}
    assert by_gpu(view, "container_gpu_memory_total", "gpu_memory") == memory
    time = {"gpu1:0": 0, "gpu1:1": 0, "total": 0}
    assert by_gpu(view, "container_gpu_utilization", "gpu") == time
    asked = "container_request_gpu"
    assert by_gpu(view, f"{asked}_memory", "req_of_gpu_memory") == {"total": 8192}
    assert by_gpu(view, f"{asked}_utilization", "req_of_gpu") == {"total": 0.7}


def test_the_sum_includes_removed_devices(divided: Divided) -> None:
    gone = divided.view(known=False)
    assert by_gpu(gone, "container_gpu_memory_total", "gpu_memory") == {"total": 4096}


def test_people_see_which_device_is_which(divided: Divided) -> None:
    view = divided.view()
    headings = ["GPU 0", "GPU 1", "GPU 1:0", "GPU 1:1"]
    for page in (usage_page.render(view), graph_page.render(view)):
        # A table's caption, for screen readers, repeats its GPU.
        assert list(dict.fromkeys(re.findall(r"GPU \d[:\d]*", ParsedPage(page).text()))) == headings
    text = divided.top.prints("--once", "--interval", "0.1")
    assert re.findall(r"^GPU \d[:\d]*", text, re.MULTILINE) == headings


def test_gpu_in_mig_mode_is_shown_so_with_nothing_free(divided: Divided) -> None:
    divided_gpu = next(gpu for gpu in divided.gpus if gpu.divided)
    http = HttpChild(SETTINGS, "node-1")
    http.send_gpus(Inventory([divided_gpu], profiles={divided_gpu.uuid: profiles()}))
    node = Node("node-1", divided.top.tenants.state_dir)
    node.known = node_gpus.parse(http._gpus.decode())
    (entry,) = asyncio.run(node.view()).gpus or ()
    assert (entry["mig_mode"], entry["free_core_percent"]) == (True, 0)
