"""The cluster page in a real browser: by keyboard, for a screen reader, on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.agent.http.test_page_in_browser import serving
from support.host import browser, on_phone
from support.scheduler import clusters
from support.scheduler.clusters import container, gpus_of, node, pod
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.extender.http import cluster_page, cluster_view
from vcuda_plugin.extender.http.viewer_rights import Sight


@pytest.fixture(scope="module")
def page() -> bytes:
    share = {"main": [GpuShare("GPU-a-0", 4 << 30, 30)]}
    asked = container(core=30, memory=16)
    made = clusters.cluster(
        node("a", gpus_of("a", 16, 16, model="NVIDIA H100 80GB HBM3")),
        pod("train-" + "x" * 57, asked, node="a", shares=share, namespace="research"),
        pod("waits", container(core=80, memory=80), namespace="research"),
    )
    return cluster_page.render(cluster_view.view(made, Sight("", True)))


def test_screen_reader_hears_headings_bars_and_tables_by_name(page: bytes, tmp_path: Path) -> None:
    with serving([page]) as (address, _), browser.browsing(tmp_path) as tab:
        tab.open(address)
        nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
    found: dict[str, list[str]] = {}
    for each in nodes:
        if not each.get("ignored"):
            name = each.get("name", {}).get("value", "")
            found.setdefault(each["role"]["value"], []).append(name)
    assert found["heading"][:3] == ["vcuda in the cluster", "What waits", "Quotas"]
    assert found["table"][0] == "Pods that wait for a GPU"
    assert found["table"][-1] == "Shares of GPU 0"
    assert found["image"][:2] == ["Compute: 70 % free", "Memory: 12.0 GiB free of 16.0 GiB"]
    assert (found["textbox"], found["button"]) == (["Namespace"], ["Show"])
    assert len(found["search"]) == len(found["main"]) == 1


def test_keyboard_alone_chooses_a_namespace_at_the_pages_own_path(
    page: bytes, tmp_path: Path
) -> None:
    with serving([page], "'self'") as (address, asked), browser.browsing(tmp_path) as tab:
        tab.open(address)
        tab.press("Tab", *"team", "Enter")
        tab.wait_for("Page.loadEventFired")
    assert "/usage?namespace=team" in asked


def test_cluster_page_fits_a_phone_in_light_and_dark(page: bytes, tmp_path: Path) -> None:
    with serving([page]) as (address, _), browser.browsing(tmp_path) as tab:
        on_phone.check(tab, address)
