"""`vcuda doctor` beside real containers: one uses the shim, one bypasses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from engines.starts.test_container_names import vcuda
from support.engines.base import Engine
from support.product import Product, asking
from support.waiting import until

HOLD = "vcuda-workload hold --bytes 1MiB --seconds 100"
LINK = "ln -s /usr/local/vcuda/driver/cuda /tmp/libcuda.so.1"
ROUND_THE_SHIM = "LD_LIBRARY_PATH=/tmp"


@pytest.fixture
def sharing(engine: Engine, product: Product) -> Iterator[Engine]:
    with product.on(engine):
        yield engine


def doctor(product: Product, engine: Engine, *before: str) -> tuple[int, list[dict[str, str]]]:
    """Return exit code and findings. before: a command prefix."""
    words = [product.prefix + "/bin/vcuda", "--config", product.config, "doctor", "--json"]
    result = engine.host.run([*before, *words], env=getattr(engine, "environment", dict)())
    assert result.stderr == ""
    return result.rc, json.loads(result.stdout)


def named(name: str, findings: list[dict[str, str]]) -> list[dict[str, str]]:
    return [found for found in findings if found["name"] == name]


NOTHING_FOUND = {
    "name": "shim-not-loaded",
    "severity": "ok",
    "what": "no program in a container goes round the shim",
    "where": "",
    "mend": "",
}


def start(engine: Engine, product: Product, container: str, script: str, programs: int) -> str:
    """Start a container with so many programs that hold memory; its allocation's id."""
    before = {record["id"] for record in product.allocations(engine)}
    command = ["sh", "-c", script]
    started = engine.start(container, command, **asking(engine, core=30, memory_bytes=1 << 30))
    assert started.rc == 0, started.stderr
    held = f"{programs} programs to hold memory"
    until(lambda: engine.logs(container).count("}") >= programs, held)
    (id,) = {record["id"] for record in product.allocations(engine)} - before
    return str(id)


def test_only_a_program_that_bypasses_the_shim_is_found(
    sharing: Engine, product: Product, container: str
) -> None:
    keeps, goes_round = container + "-keeps", container + "-round"
    try:
        start(sharing, product, keeps, f"{HOLD} & {HOLD}; true", 2)
        # Beside a program that keeps to the shim, and not as the container's first process.
        id = start(
            sharing, product, goes_round, f"{HOLD} & {LINK}; {ROUND_THE_SHIM} {HOLD}; true", 2
        )
        listed = json.loads(vcuda(sharing, product, "ps", "--json").stdout)
        (name,) = [entry["name"] for entry in listed if entry["id"] == id]
        code, findings = doctor(product, sharing)
        (found,) = named("shim-not-loaded", findings)
        pid = re.findall(r"process (\d+) ", found["what"])[0]
        assert found == {
            "name": "shim-not-loaded",
            "severity": "error",
            "what": f"process {pid} (vcuda-workload) has /usr/local/vcuda/driver/cuda and not the "
            "shim: nothing limits it",
            "where": id if id.startswith(name) else name,
            "mend": "let it load libcuda.so.1 from the loader's own folders",
        }
        assert code == 2
        environment = sharing.host.check(["cat", f"/proc/{pid}/environ"])
        assert ROUND_THE_SHIM in environment.split("\0")
        sharing.delete(goes_round)
        assert named("shim-not-loaded", doctor(product, sharing)[1]) == [NOTHING_FOUND]
    finally:
        sharing.delete(keeps)
        sharing.delete(goes_round)


def test_a_container_that_its_engine_has_lost_is_found(
    start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    engine = start_engine("runc-v1")
    with product.on(engine):
        try:
            id = start(engine, product, container, HOLD, 1)
            alive = named("dead-containers", doctor(product, engine)[1])
            engine.kill(container)
            assert engine.wait(container) == 137
            dead = named("dead-containers", doctor(product, engine)[1])
        finally:
            engine.delete(container)
    assert [(each["severity"], each["where"]) for each in alive] == [("ok", "")]
    assert [(each["severity"], each["where"]) for each in dead] == [("warning", id)]


def test_output_without_root_lists_skipped_checks(
    start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    engine = start_engine("runc-v1")
    with product.on(engine):
        try:
            start(engine, product, container, HOLD, 1)
            as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
            code, findings = doctor(product, engine, *as_nobody)
        finally:
            engine.delete(container)
    unknown = {found["name"] for found in findings if found["severity"] == "unknown"}
    of_containers = {"dead-containers", "shim-not-loaded", "older-shim"}
    of_containers |= {"drained-gpus", "nodes-left"}
    assert unknown == {"state-dir", "records", "denials", *of_containers}
    assert code == 1


def test_the_installed_command_judges_the_host_that_it_is_on(
    start_engine: Callable[[str], Engine], product: Product
) -> None:
    for name, cgroups in {
        "runc-v1": "cgroup v1 with its devices controller",
        "runc-v2": "cgroup v2, and the kernel loads device programs",
    }.items():
        engine = start_engine(name)
        with product.on(engine):
            _, findings = doctor(product, engine)
        well = {found["name"] for found in findings if found["severity"] == "ok"}
        assert well >= {"settings", "driver", "nvml", "programs", "shim", "low-level-runtime"}
        assert [found["what"] for found in named("device-rules", findings)] == [cgroups]
