"""The agent's pages in a real browser: live updates, escaped names, no external requests."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.host import browser, on_phone
from support.ledger.samples import GIB, gpus
from support.ledger.tenants import Tenants
from support.waiting import until
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.agent.http import graph_page, usage_page
from vcuda_plugin.agent.http.node_state import Node, View
from vcuda_plugin.kube.node_gpus import NodeGpus
from vcuda_plugin.web import page_frame

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@contextlib.contextmanager
def serving(pages: list[bytes], form_action: str = "'none'") -> Iterator[tuple[str, list[str]]]:
    """The address, and what was asked for: the first page first, the last one from then on."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            for header in page_frame.headers(form_action):
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(pages[min(len(asked), len(pages)) - 1])

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/usage", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def shown(address: str, folder: Path) -> str:
    """The page as it stands after some seconds of the browser's own, quickened, time."""
    words = (f"--user-data-dir={folder}/profile", "--virtual-time-budget=9000", "--dump-dom")
    command = [browser.program(), *browser.OPTIONS, *words, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[Tenants]:
    node = Tenants(str(tmp_path))
    yield node
    node.close()


def test_the_page_follows_what_happens_and_runs_no_name(tenants: Tenants, tmp_path: Path) -> None:
    def page() -> bytes:
        node = Node("node-1", tenants.state_dir)
        node.known = NodeGpus(gpus(16))
        return usage_page.render(asyncio.run(node.view()))

    before = page()
    pod = {"uid": "u", "namespace": "ml", "name": EVIL, "container": "latecomer"}
    tenants.add_record("pod-u.main", pod=pod)
    after = page()
    # As if a name were not escaped: only the content security policy is left.
    through = after.replace(b"<main>", b"<main>" + EVIL.encode())
    with serving([before, through]) as (address, asked):
        dom = shown(address, tmp_path)
    assert len(asked) > 2 and set(asked) == {"/usage"}, "it asks again, and for nothing else"
    assert "ml/&lt;img src=x" in dom and "/latecomer" in dom
    assert "<title>node-1: GPUs</title>" in dom
    assert '<html lang="en" data-every="2">' in dom, "it is not marked as stale"


def busy_node(tenants: Tenants) -> View:
    """Eight GPUs and a pod with a name as long as they may be."""
    pod = {"uid": "u", "namespace": "research", "name": "train-" + "x" * 57, "container": "main"}
    tenants.add_record("pod-u.main", pod=pod, shares=[GpuShare("GPU-0", 4 * GIB, 30)])
    tenants.add_record("box", shares=[GpuShare("GPU-0", 4 * GIB, 30)])
    tenants.uses("box", held=GIB)
    node = Node("node-1", tenants.state_dir)
    node.known = NodeGpus(gpus(*[80] * 8), unhealthy={"GPU-1": "Xid 79"})
    return asyncio.run(node.view())


@pytest.mark.parametrize("render", [usage_page.render, graph_page.render])
def test_the_page_fits_a_phone_and_is_readable_in_dark_mode(
    tenants: Tenants, tmp_path: Path, render: Any
) -> None:
    page = render(busy_node(tenants))
    with serving([page]) as (address, _), browser.browsing(tmp_path) as tab:
        on_phone.check(tab, address)


def test_agents_page_is_named_for_screen_readers_and_printed_without_links(
    tenants: Tenants, tmp_path: Path
) -> None:
    page = usage_page.render(busy_node(tenants))
    with serving([page]) as (address, _), browser.browsing(tmp_path) as tab:
        tab.open(address)
        nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
        spoken = [
            (each["role"]["value"], each.get("name", {}).get("value", ""))
            for each in nodes
            if not each.get("ignored")
        ]
        links = tab.evaluate("[...document.links].map(each => each.getAttribute('href'))")
        tab.send("Emulation.setEmulatedMedia", media="print")
        printed = tab.evaluate("document.body.innerText")
    assert [name for role, name in spoken if role == "link"][:3] == ["Usage", "Graph", "Metrics"]
    assert {name for role, name in spoken if role == "table"} == {"Containers of GPU 0"}
    bars = [name for role, name in spoken if role == "image"]
    assert [name.partition(":")[0] for name in bars if name][:2] == ["Compute", "Memory"]
    assert "bar" not in bars and "" not in bars
    assert {"main", "navigation"} <= {role for role, _ in spoken}
    # A proxy may serve it below any path.
    assert [each for each in links if each.startswith(("/", "http"))] == []
    assert "box" in printed and "Metrics" not in printed


OPEN = "[...document.querySelectorAll('details[open]')].map(each => each.id)"
FOCUSED = "document.activeElement.innerText.split('\\n')[0]"


def test_keyboard_alone_opens_a_containers_processes_and_a_refresh_leaves_them(
    tenants: Tenants, tmp_path: Path
) -> None:
    before = usage_page.render(busy_node(tenants))
    tenants.add_record("latecomer")
    after = usage_page.render(busy_node(tenants))
    with serving([before, after]) as (address, asked), browser.browsing(tmp_path) as tab:
        tab.open(address)
        focused = []
        for _ in range(4):
            tab.press("Tab")
            focused.append(tab.evaluate(FOCUSED))
        tab.press("Enter")
        listed = tab.evaluate("document.querySelector('ul.processes').innerText")
        nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
        spoken = [(each["role"]["value"], each.get("name", {}).get("value")) for each in nodes]
        time.sleep(page_frame.REFRESH_SECONDS + 0.5)
        while_focused = len(asked), tab.evaluate(OPEN)
        tab.evaluate("document.activeElement.blur()")
        until(lambda: "latecomer" in tab.evaluate("document.body.innerText"))
        afterwards = tab.evaluate(OPEN)
        tab.evaluate("document.querySelector('summary').click()")
        closed = tab.evaluate(OPEN)
    assert focused == ["Usage", "Graph", "Metrics", "box"]
    assert listed.startswith("pid 7: 1 GiB, 0 % of the GPU")
    assert ("list", "Processes of box") in spoken
    assert ("DisclosureTriangle", "box 1 process") in spoken
    assert while_focused == (1, ["GPU-0 box"])
    assert (afterwards, closed) == (["GPU-0 box"], [])


def test_page_without_script_shows_current_and_later_figures(
    tenants: Tenants, tmp_path: Path
) -> None:
    before = usage_page.render(busy_node(tenants))
    tenants.add_record("latecomer")
    after = usage_page.render(busy_node(tenants))
    with serving([before, after]) as (address, asked), browser.browsing(tmp_path) as tab:
        tab.send("Emulation.setScriptExecutionDisabled", value=True)
        tab.open(address)
        first = tab.text()
        tab.wait_for("Page.loadEventFired")
        second = tab.text()
    assert ["box" in first, "latecomer" in first, "latecomer" in second] == [True, False, True]
    assert asked[:2] == ["/usage", "/usage"]
