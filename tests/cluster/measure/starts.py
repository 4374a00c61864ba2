"""From a pod's creation to its report as Running: with a share over one without, in pairs.

    make cluster-starts KUBEBUILDER_ASSETS=DIR CONTAINERD=DIR2 PAIRS=40

The node's host runs `vcuda serve`, as docs/start-kubernetes.md says.
A pair is a pod without a share, by the cluster's own kube-scheduler and runc, and a pod with one,
in random order, one after the other; the former is deleted before the next is created. By the
plugin the pod is placed by the chart's scheduler and runs by the RuntimeClass; by DRA it has a
claim.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys

# Run as `python -m tests.cluster.measure.starts`. pytest finds the packages below tests/, as this
# does.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from typing import Any

from cluster.kubernetes import binaries, claims
from cluster.kubernetes.node import CORE, SCHEDULER, Node
from cluster.measure import inside
from release.soak.pods import files_in
from support.agent.claim_server import ClaimServer
from support.host import own_run

GOAL = 1.15
WARMING = 3
WAYS = ("plugin", "dra")
SECONDS = 3600


def main() -> None:
    parser = argparse.ArgumentParser(prog="make cluster-starts")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--json-out", default="build/cluster-starts.json")
    options = parser.parse_args()
    own_run.sweep()
    folder = own_run.scratch_folder()
    report: dict[str, Any] = {}
    try:
        os.mkdir(folder + "/cluster")
        node = Node(files_in(folder), folder + "/cluster", binaries.folder())
        try:
            server = ClaimServer(node.host, node.product, node.product.state_dir(node.engine))
            for way in options.ways:
                report[way] = measure(node, way, options.pairs)
                print(f"[starts] {way}: {report[way]}", flush=True)
            server.close()
        finally:
            node.close()
    finally:
        shutil.rmtree(folder)
    with open(options.json_out, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


def measure(node: Node, way: str, pairs: int) -> dict[str, float]:
    """Medians in milliseconds, and the ratio of the sums of both halves of all pairs."""
    node.offer(way)
    if way == "dra":
        node.wait(lambda: len(claims.devices(node)) == 2, "the node's devices")
        node.apply(claims.template("share", 30, "1Gi"))
    else:
        node.wait(lambda: node.allocatable(CORE) == 200, "the node's GPUs")
    dice, pods, shares = random.Random(0), [], []
    for number in range(WARMING + pairs):
        for share in dice.sample([False, True], 2):
            pods.append(_pod(node, f"pod-{number}-{'share' if share else 'plain'}", share, way))
            shares.append(share)
    file = node.host.write("pods.json", json.dumps(pods))
    words = [sys.executable, "-m", "cluster.measure.inside", node.cluster.kubeconfig("admin")]
    printed = node.host.check([*words, "starts", file], env=inside.ENV, timeout=SECONDS)
    lines = [tuple(map(float, line.split())) for line in printed.splitlines()]
    times = list(zip(shares, lines, strict=True))[2 * WARMING :]
    halves = [[each for share, each in times if share is which] for which in (False, True)]
    (plain_placed, plain), (share_placed, shared) = (zip(*half) for half in halves)
    return {
        "plain_placed_ms": round(1e3 * statistics.median(plain_placed)),
        "share_placed_ms": round(1e3 * statistics.median(share_placed)),
        "plain_ms": round(1e3 * statistics.median(plain)),
        "share_ms": round(1e3 * statistics.median(shared)),
        "median_ratio": round(statistics.median(shared) / statistics.median(plain), 3),
        "ratio": round(sum(shared) / sum(plain), 3),
        "goal": GOAL,
    }


def _pod(node: Node, name: str, share: bool, way: str) -> dict[str, Any]:
    if way == "dra":
        pod = claims.pod(name, "share", ["sleep", "10000"], "Always")
        if not share:
            del pod["spec"]["resourceClaims"], pod["spec"]["containers"][0]["resources"]
        return pod
    pod = node.pod(name, 30, 4)
    assert pod["spec"]["schedulerName"] == SCHEDULER
    if not share:
        del pod["spec"]["schedulerName"], pod["spec"]["runtimeClassName"]
        del pod["spec"]["containers"][0]["resources"]
    return pod


if __name__ == "__main__":
    main()
