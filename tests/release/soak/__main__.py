"""``make soak``: exit code 0 if no start left anything and none got slower."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from typing import Any

# Run as `python -m tests.release.soak`; pytest finds the packages below tests/, as this does.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from release.soak import verdict
from release.soak.starts import PLAIN, WITH_SERVER, WITHOUT_SERVER, Soaked, Starts, soak
from support import compiled
from support.bundle import rootfs
from support.engines import ENGINES
from support.engines.base import Files
from support.engines.low_level import LowLevel
from support.host import cgroups, own_run
from support.product import Product


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--starts", type=int, default=10_000, help="on each engine")
    both = ["runc-v1" if cgroups.is_v1() else "runc-v2", "crun-v2"]
    parser.add_argument("--engines", nargs="+", default=both, help="default: %(default)s")
    parser.add_argument("--json-out", default="build/soak.json")
    options = parser.parse_args()
    own_run.sweep()
    reports = []
    for name in options.engines:
        report = {"engine": name, **figures(soaked_on(name, options.starts))}
        say(name, json.dumps(report, indent=1))
        reports.append(report)
    with open(options.json_out, "w") as file:
        json.dump(reports, file, indent=1)
        file.write("\n")
    return 1 if any(report["faults"] for report in reports) else 0


def soaked_on(name: str, count: int) -> Soaked:
    """Raises RuntimeError: a container did not start."""
    folder = own_run.scratch_folder()
    try:
        rootfs.build(folder + "/rootfs")
        preload = compiled.library(folder, "no_setrlimit")
        engine = ENGINES[name](Files(folder + "/rootfs", "", "", preload))
        assert isinstance(engine, LowLevel)
        try:
            say(name, "installing twice")
            starts = Starts(engine, Product(folder + "/with"), Product(folder + "/without"))
            soaked = soak(starts, count, lambda text: say(name, text))
            starts.close()
            return soaked
        finally:
            engine.close()
    finally:
        shutil.rmtree(folder)


def figures(soaked: Soaked) -> dict[str, Any]:
    """For JSON. ratio: of the first tenth and of the last, over plain starts beside them."""
    growth = verdict.growth(soaked)
    return {
        "starts": soaked.starts,
        "faults": verdict.faults(soaked),
        "plain_ms": [
            statistics.median(times[PLAIN]) * 1e3 for times in (soaked.first, soaked.last)
        ],
        "ratio": {
            way: [verdict.ratio(soaked.first, way), verdict.ratio(soaked.last, way)]
            for way in (WITH_SERVER, WITHOUT_SERVER)
        },
        "slowdown": {way: verdict.slowdown(soaked, way) for way in (WITH_SERVER, WITHOUT_SERVER)},
        "server_growth_bytes": growth,
        "door_descriptors": sum(use.descriptors for use in soaked.server_after.values()),
    }


def say(engine: str, text: str) -> None:
    sys.stderr.write(f"[soak] {engine}: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
