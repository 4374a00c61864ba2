"""Containers by their user-given names, on the engines that store one beside an id."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from support.engines.base import Engine, Result
from support.engines.cri import Cri
from support.product import Product, asking

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
            assert (entry["id"], entry["name"]) == (record["id"], container)
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
            assert refused.stderr.startswith(f"vcuda: {record['id']}: its container lives; ")
        finally:
            engine.delete(container)
    assert product.allocations(engine) == []


def test_a_pods_container_is_found_as_ps_shows_it_and_by_its_cri_id(
    cri: Cri, product: Product, container: str
) -> None:
    with product.on(cri):
        pod = cri.run_pod(container)
        try:
            id = cri.start_container(pod, ["sleep", "100"], name="worker", **asking(cri, core=30))
            (entry,) = json.loads(vcuda(cri, product, "ps", "--json").stdout)
            assert entry["name"] == f"default/{pod.name}/worker"
            for core, word in enumerate((entry["name"], id, id[:13]), 40):
                assert vcuda(cri, product, "limit", word, "--core", str(core)).stderr == ""
                shown = json.loads(vcuda(cri, product, "inspect", word, "--json").stdout)
                assert shown["shares"][0]["core_percent"] == core
        finally:
            cri.remove_pod(pod)
        vcuda(cri, product, "release", "--all-dead")


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
