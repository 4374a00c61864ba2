"""`vcuda ps --processes`: a container's processes by the host's pids, with their GPU memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engines.starts.test_container_names import vcuda
from support.engines.base import Engine
from support.product import MIB, Product, asking
from support.waiting import until


@pytest.mark.parametrize("kind", ["runc-v2", "crun-v2", "docker", "podman"])
def test_each_process_has_its_host_pid_and_its_memory(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)
    with product.on(engine):
        hold = "vcuda-workload hold --bytes 256MiB --seconds 100 & exec sleep 100"
        started = engine.start(container, ["sh", "-c", hold], **asking(engine, core=30))
        try:
            assert started.rc == 0, started.stderr

            def shown() -> list[dict[str, Any]]:
                answer = vcuda(engine, product, "ps", "--processes", "--json")
                return list(json.loads(answer.stdout))

            until(lambda: any(each["memory_used_bytes"] for each in shown()))
            processes = {each["command"]: each for each in shown()}
            assert processes.keys() == {"sleep", "vcuda-workload"}
            sleep, workload = processes["sleep"], processes["vcuda-workload"]
            assert sleep["pid_inside"] == 1 and workload["pid_inside"] != 1
            assert (sleep["memory_used_bytes"], sleep["busy_seconds"]) == (None, None)
            assert workload["memory_used_bytes"] >= 256 * MIB
            assert {each["name"] for each in processes.values()} == {container}
            for each in processes.values():
                named = engine.host.check(["cat", f"/proc/{each['pid']}/comm"])
                assert named.strip() == each["command"]
            lines = vcuda(engine, product, "ps", "--processes").stdout.splitlines()
            assert lines[0].split() == [
                *["CONTAINER", "PID", "INSIDE", "MEMORY", "GPU", "TIME", "COMMAND"]
            ]
            (line,) = [line for line in lines if "vcuda-workload" in line]
            assert line.split()[:3] == [
                container, str(workload["pid"]), str(workload["pid_inside"]),
            ]  # fmt: skip
        finally:
            engine.delete(container)
