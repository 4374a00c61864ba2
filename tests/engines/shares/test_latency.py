"""Low latency in a container of a real runtime, in real time."""

from __future__ import annotations

import glob
import json
import os
import subprocess
from collections.abc import Callable

import pytest

from support.engines.base import Engine
from support.files import ROOT
from support.product import Product, asking
from support.waiting import until

TURN_KEEPER = os.path.join(ROOT, "build", "lib", "vcuda-turn-keeper")
SECONDS = 3


@pytest.mark.timed
@pytest.mark.parametrize(("latency", "waits"), [("low", False), ("normal", True)])
def test_a_neighbours_long_kernel_holds_up_normal_latency_only(
    start_engine: Callable[[str], Engine],
    product: Product,
    container: str,
    scratch: str,
    latency: str,
    waits: bool,
) -> None:
    engine = start_engine("runc-v2")
    loads = {
        container + "-requests": (30, latency, ["--kernel-us=1000", "--every-ms=50"]),
        container + "-long": (70, "normal", ["--kernel-us=300000"]),
    }
    keeper = None
    with product.on(engine):
        try:
            for name, (core, word, options) in loads.items():
                command = ["vcuda-workload", "busy", f"--seconds={SECONDS}", "--async=0"]
                command += ["--wait-file=/start/now", *options]
                asked = asking(engine, core=core, gpu="0", latency=word)
                started = engine.start(name, command, mounts=[(scratch, "/start")], **asked)
                assert started.rc == 0, started.stderr
            keeper = subprocess.Popen([TURN_KEEPER, product.state_dir(engine), str(os.getpid())])
            _wait_for_figures(product.state_dir(engine), len(loads))
            with open(os.path.join(scratch, "now"), "w"):
                pass
            for name in loads:
                assert engine.wait(name) == 0, engine.logs(name)
            found = [json.loads(engine.logs(name)) for name in loads]
        finally:
            for name in loads:
                engine.delete(name)
            if keeper:
                keeper.terminate()
                keeper.wait(10)
    # The median: a busy host keeps some of the requests off a processor.
    assert (found[0]["p50_us"] > 30_000) == waits
    assert found[1]["share"] == pytest.approx(0.7, abs=0.15)


def _wait_for_figures(state_dir: str, containers: int) -> None:
    """Until the turn keeper has taken so many containers over."""

    def are_there() -> bool:
        lines = []
        for path in glob.glob(f"{state_dir}/turns/GPU-*"):
            with open(path) as figures:
                lines.append(len(figures.readlines()))
        return 1 + containers in lines

    until(are_there, "the turn keeper to take the containers over")
