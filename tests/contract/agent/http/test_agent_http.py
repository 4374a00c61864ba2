"""The installed agent's HTTP service, read by a real Prometheus and flooded by clients."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract.agent.test_device_plugin import CORE, allocate, offered, uuids
from support.agent.agent_http import free_port
from support.agent.node_agent import AgentNode
from support.ledger.samples import GIB
from support.ledger.tenants import Tenants
from support.needed import skip_or_fail
from support.waiting import until
from vcuda_hook.advice import demands
from vcuda_oci.ledger import events
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.agent.process import rights

SCRAPING = """
global: {scrape_interval: 2s, scrape_timeout: 2s}
scrape_configs:
"""
SCRAPED = """
- job_name: %s
  metrics_path: %s
  static_configs: [{targets: ["127.0.0.1:%d"]}]
"""


def listening(node: AgentNode, **settings: str) -> int:
    port = free_port()
    node.configure(listen=f"127.0.0.1:{port}", **settings)
    return port


def asked(port: int, path: str) -> Any:
    """None: no answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return json.load(answer)
    except (urllib.error.URLError, OSError):
        return None


@contextlib.contextmanager
def prometheus(folder: Path, agent: int, extender: int = 0) -> Iterator[int]:
    """The port of a Prometheus that scrapes the agent on its port, and the extender on its."""
    program, port = shutil.which("prometheus"), free_port()
    if program is None:
        skip_or_fail("prometheus is not installed")
    jobs = SCRAPED % ("agent", "/metric", agent)
    jobs += SCRAPED % ("extender", "/metrics", extender) if extender else ""
    (folder / "prometheus.yml").write_text(SCRAPING + jobs)
    command = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
    ]
    with open(folder / "prometheus.log", "w") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(30)


def test_prometheus_takes_the_page_whatever_containers_are_called(
    node: AgentNode, tmp_path: Path
) -> None:
    port = listening(node)
    tenants = Tenants(str(tmp_path))
    with node.agent():
        until(lambda: bool((asked(port, "/usage") or {}).get("gpus")))
        (first, _) = uuids(node)
        pod = {"namespace": "ml", "name": "train-0", "container": 'a"b\\c\n\0{}', "uid": "u"}
        tenants.add_record("pod-u.main", shares=[GpuShare(first, 4 * GIB, 30)], pod=pod)
        tenants.uses("pod-u.main", held=GIB)
        with prometheus(tmp_path, port) as server:

            def values(name: str) -> dict[str, float]:
                query = urllib.parse.urlencode({"query": name})
                answer = asked(server, f"/api/v1/query?{query}")
                found = answer["data"]["result"] if answer else []
                return {
                    one["metric"].get("container_name", ""): float(one["value"][1]) for one in found
                }

            name = 'a"b\\c??{}'
            until(lambda: values('container_gpu_memory_total{gpu_memory="gpu0"}') == {name: 1024})
            until(lambda: values("container_request_gpu_memory") == {name: 4096})
            until(lambda: values("up") == {"": 1})
    tenants.close()


def test_the_agent_keeps_the_history_of_gpus_and_containers(
    node: AgentNode, tmp_path: Path
) -> None:
    port = listening(node)
    tenants = Tenants(str(tmp_path))
    with node.agent():
        until(lambda: bool((asked(port, "/usage") or {}).get("gpus")))
        first, second = uuids(node)
        tenants.add_record("box", shares=[GpuShare(first, 4 * GIB, 30)])
        tenants.uses("box", held=GIB)
        until(lambda: "box" in asked(port, "/history")["containers"])
        found = asked(port, "/history")
        assert found["containers"]["box"]["memory_bytes"][-1] == GIB
        assert found["gpus"].keys() == {first, second}
        assert found["gpus"][second]["compute_percent"][-1] == 0
    tenants.close()


def test_the_agents_end_saves_what_workloads_need_for_the_next_one(
    node: AgentNode, tmp_path: Path
) -> None:
    port = listening(node)
    tenants = Tenants(str(tmp_path))
    saved = Path(tenants.state_dir, demands.FILE)
    for runs in (1, 2):
        with node.agent():
            until(lambda: bool((asked(port, "/usage") or {}).get("gpus")))
            tenants.add_record("box", shares=[GpuShare(uuids(node)[0], 4 * GIB, 30)])
            tenants.uses("box", held=GIB)
            until(lambda: "box" in asked(port, "/history")["containers"])
        (found,) = demands.parse(saved.read_bytes()).items()
        assert (found[0].shown, found[0].kind) == ("box", "Container")
        assert found[1].peaks[-1][1] == GIB
        assert found[1].samples >= runs
    assert saved.stat().st_uid == rights.HTTP_UID
    tenants.close()


def test_the_agent_shows_the_sensors_of_gpus_that_answer(node: AgentNode) -> None:
    port = listening(node)

    def sensors() -> dict[str, Any]:
        gpus = (asked(port, "/usage") or {}).get("gpus") or [{}]
        return dict(gpus[0].get("sensors", {}))

    with node.agent():
        until(lambda: sensors().get("temperature_celsius") == 30)
        assert (sensors()["power_watts"], sensors()["sm_clock_hertz"]) == (50, 1980e6)
        # The software GPU's NVML tells of no traffic.
        assert sensors()["pcie_sent_bytes_per_second"] is sensors()["nvlink_sent_bytes"] is None
        node.order("fail", "--lost", "0")
        until(lambda: sensors()["temperature_celsius"] is None)


def test_prometheus_knows_which_allocation_a_slow_start_was(
    node: AgentNode, tmp_path: Path
) -> None:
    port = listening(node, exemplars="yes")
    with node.agent(), prometheus(tmp_path, port) as server:
        path = "/api/v1/query_exemplars?query=vcuda_start_seconds_bucket&start=0&end=9999999999"

        def told() -> list[dict[str, Any]]:
            # Prometheus takes no older one than it has of a series, and begins with none.
            events.record(node.state_dir, "p", "claimed", "pod-u.main", "", seconds=3.25)
            found = (asked(server, path) or {}).get("data") or []
            return [exemplar for series in found for exemplar in series["exemplars"]]

        until(lambda: bool(told()))
        one = told()[0]
        assert (one["labels"], one["value"]) == ({"allocation": "pod-u.main"}, "3.25")


def test_a_flood_of_clients_holds_up_no_call_of_the_kubelet(node: AgentNode) -> None:
    port, over = listening(node), threading.Event()

    def scrape() -> None:
        while not over.is_set():
            asked(port, "/usage")

    with node.agent() as agent:
        offered(node, CORE)
        until(lambda: asked(port, "/version") is not None)
        (first, _) = uuids(node)
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(400)]
        scrapers = [threading.Thread(target=scrape) for _ in range(16)]
        for scraper in scrapers:
            scraper.start()
        times = []
        for number in range(20):
            began = time.monotonic()
            allocate(node, CORE, f"{first}.{number}")
            times.append(time.monotonic() - began)
        over.set()
        for scraper in scrapers:
            scraper.join()
        for client in idle:
            client.close()
        assert sorted(times)[10] < 2
        assert len(agent.children()) == 4


def test_a_killed_http_server_restarts_without_disturbing_the_agent(node: AgentNode) -> None:
    port = listening(node)
    with node.agent() as agent:
        until(lambda: bool((asked(port, "/usage") or {}).get("gpus")))
        offered(node, CORE)
        children = agent.children()
        server = agent.child("http_process")
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(server)], check=True)
        until(lambda: bool((asked(port, "/usage") or {}).get("gpus")))
        assert set(children) - {server} < set(agent.children())
        assert node.kubelet.registrations.count(CORE) == 1
        assert any("not served; trying again in 5 s" in line for line in agent.log())


def test_address_in_use_is_reported_and_the_agent_continues(node: AgentNode) -> None:
    port = listening(node)
    line = (
        f"vcuda-node-agent: 127.0.0.1:{port}: cannot listen: Address already in use; "
        "free the address, or set listen"
    )
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with node.agent() as agent:
            offered(node, CORE)
            until(lambda: line in agent.log())


def test_an_address_that_is_none_is_refused_in_one_line(node: AgentNode) -> None:
    node.configure(listen="localhost:http")
    done = subprocess.run(
        [node.program, "--config", node.config], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (
        1,
        f"vcuda-node-agent: {node.config}: listen cannot be 'localhost:http': no port; "
        'write an address and a port such as "127.0.0.1:5678", or ""\n',
    )
