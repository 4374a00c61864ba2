"""Containers by their user-given names, on the engines that store one beside an id."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.agent.agent_http import free_port
from support.agent.node_agent import only_child
from support.engines import each_cri
from support.engines.base import IMAGE, Engine, Result
from support.engines.cri import Cri
from support.engines.docker import Docker
from support.engines.podman import Podman
from support.product import Product, asking
from support.waiting import until

GIB = 1 << 30
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def vcuda(engine: Engine, product: Product, *words: str, user: tuple[str, ...] = ()) -> Result:
    program = [product.prefix + "/bin/vcuda", "--config", product.config, *words]
    return engine.host.run([*user, *program])


@pytest.mark.parametrize("kind", ["docker", "podman-v2"])
def test_a_container_is_shown_and_found_by_its_engines_name(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)
    with product.on(engine):
        started = engine.start(container, ["sleep", "100"], **asking(engine, core=30))
        try:
            assert started.rc == 0, started.stderr
            (record,) = product.allocations(engine)
            assert len(record["id"]) == 64
            (entry,) = json.loads(vcuda(engine, product, "ps", "--json").stdout)
            shown = [entry[key] for key in ("id", "name", "image")]
            assert shown == [record["id"], container, IMAGE]
            for verb in ("ps", "events", "top"):
                words = ["--once"] if verb == "top" else []
                assert f"{container} " in vcuda(engine, product, verb, *words).stdout
            grown = vcuda(engine, product, "limit", container, "--core", "40")
            assert (grown.rc, grown.stderr) == (0, "")
            shown = json.loads(vcuda(engine, product, "inspect", container, "--json").stdout)
            assert shown["shares"][0]["core_percent"] == 40
            recorded = json.loads(vcuda(engine, product, "events", container, "--json").stdout)
            assert [(event["kind"], event["name"]) for event in recorded] == [
                ("claimed", container),
                ("limit-changed", container),
            ]
            refused = vcuda(engine, product, "release", container)
            assert refused.stderr.startswith(f"vcuda: {container}: its container lives; ")
        finally:
            engine.delete(container)
    assert product.allocations(engine) == []


@each_cri
def test_a_pods_container_is_found_as_ps_shows_it_and_by_its_cri_id(
    cri: Cri, product: Product, container: str
) -> None:
    with product.on(cri):
        pod = cri.run_pod(container)
        try:
            id = cri.start_container(pod, ["sleep", "100"], name="worker", **asking(cri, core=30))
            (entry,) = json.loads(vcuda(cri, product, "ps", "--json").stdout)
            assert (entry["name"], entry["image"]) == (f"default/{pod.name}/worker", IMAGE)
            words = (entry["name"], f"default/{pod.name}", f"{pod.name}/worker", pod.name)
            for core, word in enumerate((*words, id, id[:13]), 40):
                assert vcuda(cri, product, "limit", word, "--core", str(core)).stderr == ""
                shown = json.loads(vcuda(cri, product, "inspect", word, "--json").stdout)
                assert shown["shares"][0]["core_percent"] == core
        finally:
            cri.remove_pod(pod)
        vcuda(cri, product, "release", "--all-dead")


# Without a library for HTTP, which takes 0.1 s to import: a page is read until it is as wanted.
READ = """
import socket, sys
host, port = sys.argv[1].split(":")
server = socket.create_connection((host, int(port)))
server.sendall(f"GET {sys.argv[2]} HTTP/1.0\\r\\nHost: {host}\\r\\n\\r\\n".encode())
head, _, body = server.makefile("rb").read().partition(b"\\r\\n\\r\\n")
if b" 200 " in head.splitlines()[0]:
    sys.stdout.buffer.write(body)
"""


@contextmanager
def agents_page(engine: Engine, product: Product) -> Iterator[Callable[[str], str]]:
    """An agent on the engine's host; answers a path with the page, "" while it is not served."""
    address = f"127.0.0.1:{free_port()}"
    with open(product.config) as file:
        settings = file.read()
    with open(product.config, "w") as file:
        file.write(settings.replace('listen = ""', f'listen = "{address}"'))
    kubelet = engine.host.path("kubelet")
    os.makedirs(kubelet, exist_ok=True)
    program = os.path.join(product.prefix, "bin/vcuda-node-agent")
    words = [program, "--config", product.config, "--kubelet-dir", kubelet]
    inside = engine.host.daemon(words, "agent.log")
    read = [sys.executable, "-IBSc", READ, address]
    try:
        yield lambda path: engine.host.run([*read, path]).stdout
    finally:
        os.kill(only_child(inside.pid), signal.SIGTERM)
        inside.wait(30)


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_the_agents_pages_follow_the_engines_name_and_image(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    """The agent's HTTP process itself may not read the engine's files."""
    engine = start_engine(kind)
    assert isinstance(engine, (Docker, Podman))
    with product.on(engine):
        started = engine.start(container, ["sleep", "100"], **asking(engine, core=30))
        names = [container, container + "-renamed"]
        try:
            assert started.rc == 0, started.stderr
            with agents_page(engine, product) as page:

                def shown() -> list[Any]:
                    tenants = json.loads(page("/usage") or "{}").get("tenants", [])
                    return [(entry["name"], entry["image"]) for entry in tenants]

                until(lambda: shown() == [(names[0], IMAGE)], what=lambda: page("/usage"))
                labels = (f'container="{names[0]}"', f'image="{IMAGE}"')
                (info,) = [
                    line
                    for line in page("/metrics").splitlines()
                    if line.startswith("vcuda_container_info{")
                ]
                assert all(label in info for label in labels)
                engine.host.check(engine.command("rename", *names))
                until(lambda: shown() == [(names[1], IMAGE)], what=lambda: page("/usage"))
        finally:
            for name in names:
                engine.delete(name)
    assert product.allocations(engine) == []


@pytest.mark.parametrize("kind", ["runc-v2", "crun-v2"])
def test_doctor_without_root_reports_only_known_facts(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)
    with product.on(engine):
        hold = ["vcuda-workload", "hold", "--bytes", "256MiB", "--seconds", "100"]
        started = engine.start(container, hold, **asking(engine, core=30))
        try:
            assert started.rc == 0, started.stderr
            for words in (["ps"], ["ps", "--json"], ["top", "--once"]):
                shown = vcuda(engine, product, *words, user=AS_NOBODY)
                assert shown.rc == 1
                assert "gone" not in shown.stdout
                assert "0 B of" not in shown.stdout.partition("GPU 1")[0]
                printed = shown.stdout + shown.stderr
                assert "unknown" in printed or "cannot be read" in printed
                assert "root" in printed
                assert "Traceback" not in shown.stderr
        finally:
            engine.delete(container)
