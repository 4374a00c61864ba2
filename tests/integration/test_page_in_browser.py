"""The pages in a real browser: kept fresh, quiet about hostile names, allowed nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from needed import cannot
from unit.ground import gpus
from unit.tenants import Tenants
from vcuda_plugin import page_shell, usage_page
from vcuda_plugin.node_gpus import NodeGpus
from vcuda_plugin.node_look import Node

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@contextlib.contextmanager
def serving(pages: list[bytes]) -> Iterator[tuple[str, list[str]]]:
    """The address, and what was asked for: the first page first, the last one from then on."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            for header in page_shell.HEADERS:
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
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        cannot("chromium is not installed")
    command = [
        *(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *(f"--user-data-dir={folder}/profile", "--virtual-time-budget=9000", "--dump-dom", address),
    ]
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
    tenants.holds("pod-u.main", pod=pod)
    after = page()
    # As if a name had got through unescaped: what is left is the policy.
    through = after.replace(b"<main>", b"<main>" + EVIL.encode())
    with serving([before, through]) as (address, asked):
        dom = shown(address, tmp_path)
    assert len(asked) > 2 and set(asked) == {"/usage"}, "it asks again, and for nothing else"
    assert "ml/&lt;img src=x" in dom and "/latecomer" in dom
    assert "<title>node-1: GPUs</title>" in dom
    assert '<html lang="en">' in dom, "it is not marked as stale"
