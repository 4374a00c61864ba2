"""A share is released by the engine's own `delete`, through the launcher or without it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from support.engines import ENGINES
from support.engines.base import Engine
from support.engines.cri import Cri
from support.engines.low_level import LowLevel
from support.product import MIB, Product, asking
from support.waiting import until
from support.wrapper.runtime_recorder import Recorder

LIMIT = 1024 * MIB
LOW_LEVEL = ["runc-v1", "runc-v2", "crun-v2"]
# A pod's container holds its share until the pod is deleted.
NO_PODS = [name for name, engine in ENGINES.items() if not issubclass(engine, Cri)]
# Engines with a containerd shim for each container.
SHIMS = ["containerd-ctr", "containerd-ctr-v2", "docker", "containerd-cri"]


def held(engine: Engine, product: Product) -> list[str]:
    state = product.state_dir(engine)
    ids = [record["id"] for record in product.allocations(engine)]
    assert sorted(os.listdir(state + "/containers")) == ids
    return ids


@pytest.mark.parametrize("engine", NO_PODS, indirect=True)
def test_a_deleted_container_holds_nothing_and_needed_no_hook(
    engine: Engine, product: Product, container: str
) -> None:
    with product.on(engine):
        asked = asking(engine, core=30, memory_bytes=LIMIT)
        try:
            started = engine.start(container, ["sleep", "100"], **asked)
            assert started.rc == 0, started.stderr
            (record,) = product.allocations(engine)
        finally:
            engine.delete(container)
        assert record["container_id"] == record["id"]
        assert held(engine, product) == []


@pytest.mark.parametrize("engine", NO_PODS, indirect=True)
def test_a_container_that_cannot_be_created_holds_nothing_once_its_engine_gave_it_up(
    engine: Engine, product: Product, container: str
) -> None:
    with product.on(engine):
        asked = asking(engine, core=30, memory_bytes=LIMIT)
        try:
            assert engine.start(container, ["/no/such/program"], **asked).rc != 0
        finally:
            engine.delete(container)
        assert held(engine, product) == []


@pytest.mark.parametrize("name", LOW_LEVEL)
def test_the_share_of_a_container_deleted_past_the_launcher_goes_to_the_next_claim(
    start_engine: Callable[[str], Engine], product: Product, container: str, name: str
) -> None:
    engine, following = start_engine(name), container + "-2"
    with product.on(engine):
        whole = asking(engine, core=200)
        assert engine.start(container, ["sleep", "100"], **whole).rc == 0
        with engine.using(engine.plain_runtime()):
            engine.delete(container)
        assert held(engine, product) == [container]
        try:
            started = engine.start(following, ["sleep", "100"], **whole)
            assert (started.rc, held(engine, product)) == (0, [following]), started.stderr
        finally:
            engine.delete(following)
        assert held(engine, product) == []


@pytest.mark.parametrize("name", LOW_LEVEL)
def test_a_launcher_that_is_killed_at_a_delete_loses_no_share(
    start_engine: Callable[[str], Engine], product: Product, container: str, name: str
) -> None:
    """At any of twenty moments; the next `delete` gives back, and a sweep takes what pages stay."""
    engine = start_engine(name)
    assert isinstance(engine, LowLevel)
    with product.on(engine):
        asked = asking(engine, core=30, memory_bytes=LIMIT)
        for moment in range(20):
            one = f"{container}-{moment}"
            try:
                assert engine.start(one, ["sleep", "100"], **asked).rc == 0
                script = f'"$@" & sleep {moment / 400}; kill -{signal.SIGKILL:d} $!; wait $!; true'
                words = engine.command("delete", "--force", one)
                killed = engine.host.run(["sh", "-c", script, "sh", *words])
                assert killed.rc == 0
                until(lambda one=one: _settled(engine, one), f"the end of the runtime of {one}")
            finally:
                engine.delete(one)
            assert product.allocations(engine) == []
        sweep = [product.prefix + "/bin/vcuda", "--config", product.config, "release", "--all-dead"]
        engine.host.check(sweep)
        assert held(engine, product) == []


def _settled(engine: LowLevel, container: str) -> bool:
    """Whether no low-level runtime is at work on the container."""
    look = f"pgrep -f -- 'delete --force {container}$'"
    return engine.host.run(["sh", "-c", look]).stdout == ""


@pytest.mark.parametrize("engine", SHIMS, indirect=True)
def test_what_a_shim_deletes_once_more_by_force_starts_no_runtime(
    engine: Engine, product: Product, container: str, record: Callable[[str], Recorder]
) -> None:
    plainly, behind = (record(engine.plain_runtime()) for _ in range(2))
    with engine.using(plainly.path):
        assert engine.run(container, ["true"]).rc == 0
    until(lambda: "delete --force" in _deletes(plainly), "the shim's last word")
    expected = [word for word in _deletes(plainly) if "--force" not in word]
    with product.on(engine, runtime=behind.path):
        # When the second has ended, all events of the first are recorded.
        for name in (container + "-1", container + "-2"):
            assert engine.run(name, ["true"]).rc == 0
        until(lambda: len(_deletes(behind)) >= 2 * len(expected), "the second's delete")
    assert _deletes(behind) == 2 * expected


def _deletes(recorder: Recorder) -> list[str]:
    """Of each, the verb with its options."""
    calls = [call[call.index("delete") :] for call in recorder.calls() if "delete" in call]
    return [" ".join(call[:-1]) for call in calls]
