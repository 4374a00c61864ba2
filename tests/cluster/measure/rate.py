"""How many pods a second a real kube-scheduler places on made-up nodes: alone, with the extender,
and by DRA.

    make cluster-rate KUBEBUILDER_ASSETS=DIR NODES='1 100 1000' ROUNDS=3

A pod is placed once it is bound. All pods of a round, and by DRA their claims, exist before
kube-scheduler starts. The rate is of the time from the first tenth of the bindings to the last.
Each node has 8 GPUs of 16 GiB; each pod asks for 1 % and 256 MiB of a GPU, or alone for a tenth of
a processor. The ways take turns. kube-scheduler calls the extender as the chart says. It is
measured with kube-scheduler's own limit of 50 calls a second, and with 1,000.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
from collections.abc import Iterator
from typing import Any

# Run as `python -m tests.cluster.measure.rate`. pytest finds the packages below tests/, as this
# does.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from cluster.kubernetes import binaries
from cluster.measure.made_up import ALONE, DEFAULT, DRA, EXTENDER, MANY, MadeUp
from support.host import own_run
from support.host.private_host import PrivateHost

Round = dict[str, Any]

WAYS = (ALONE, EXTENDER, DRA)
PODS = 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="make cluster-rate")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--calls", type=int, nargs="+", default=[DEFAULT, MANY])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json-out", default="build/cluster-rate.json")
    options = parser.parse_args()
    own_run.sweep()
    rows = []
    for nodes in options.nodes:
        found: dict[int, dict[str, list[Round]]] = {
            calls: {way: [] for way in options.ways} for calls in options.calls
        }
        with _made_up(nodes) as made:
            for _ in range(options.rounds):
                for calls, ways in found.items():
                    for way, rounds in ways.items():
                        rounds.append(measure(made, way, calls))
                        where = f"{nodes} nodes, {calls} calls a second"
                        print(f"[rate] {where}, {way}: {rounds[-1]}", flush=True)
        rows += [{"nodes": nodes, "calls": calls, "rounds": ways} for calls, ways in found.items()]
    with open(options.json_out, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")
    print(table(rows))


def measure(made: MadeUp, way: str, calls: int) -> Round:
    made.create_pods(PODS, way)
    times, used = made.place(PODS, way, calls)
    made.remove_pods()
    milliseconds = {name: round(1e3 * seconds / PODS, 2) for name, seconds in used.items()}
    return {"pods_a_second": round(rate_of(times), 1), "cpu_ms_a_pod": milliseconds}


def rate_of(times: list[float]) -> float:
    """Pods a second. times: of the bindings, in seconds and in order."""
    first = len(times) // 10
    return (len(times) - first) / (times[-1] - times[first - 1])


def table(rows: list[Any]) -> str:
    """Medians, and each way's ratio to kube-scheduler alone."""
    lines = []
    for row in rows:
        middle = {
            way: statistics.median(each["pods_a_second"] for each in rounds)
            for way, rounds in row["rounds"].items()
        }
        alone = middle.get(ALONE)
        texts = [
            f"{way} {value:.0f}" + (f" ({value / alone:.2f})" if alone else "")
            for way, value in middle.items()
        ]
        lines.append(f"{row['nodes']} nodes, {row['calls']} calls a second: {', '.join(texts)}")
    return "\n".join(lines)


@contextlib.contextmanager
def _made_up(nodes: int) -> Iterator[MadeUp]:
    host = PrivateHost()
    try:
        made = MadeUp(host, binaries.folder(), nodes)
        try:
            yield made
        finally:
            made.close()
    finally:
        host.close()


if __name__ == "__main__":
    main()
