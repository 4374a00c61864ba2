"""Pods of one size by DRA, while agent, kubelet and containerd are killed among them.

    make cluster-soak KUBEBUILDER_ASSETS=DIR CONTAINERD=DIR2 PODS=1000

A pod is lost if it did not succeed (`restartPolicy: OnFailure`), and wrong if its container saw
anything but one GPU, that of its claim, with the memory of its claim. What is left after the last
pod's end is leaked: records, pages, CDI specs, claims. Exit code 0 only if there is none of these.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

# Run as `python -m tests.cluster.measure.soak`. pytest finds the packages below tests/, as this
# does.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from cluster.kubernetes import binaries, claims
from cluster.kubernetes.node import Node
from cluster.measure import inside
from release.soak.pods import files_in
from support.host import own_run
from support.kubelet.pod_lives import SEEN
from support.product import MIB
from vcuda_oci.model import names
from vcuda_plugin.agent.dra import devices

CORES, MEMORY_MIB = 10, 512
WINDOW = 30
FOLDER = "/var/lib/seen"
# So many pods end between two kills.
PODS_A_KILL = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster-soak")
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60, help="create none after that")
    parser.add_argument("--json-out", default="build/cluster-soak.json")
    options = parser.parse_args()
    own_run.sweep()
    folder = own_run.scratch_folder()
    try:
        os.mkdir(folder + "/cluster")
        node = Node(files_in(folder), folder + "/cluster", binaries.folder())
        try:
            report = soak(node, options.pods, 60 * options.minutes)
        finally:
            node.close()
    finally:
        shutil.rmtree(folder)
    with open(options.json_out, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    print(json.dumps(report, indent=1))
    return 1 if report["lost"] or report["wrong"] or report["leaked"] else 0


def soak(node: Node, count: int, limit: float) -> dict[str, Any]:
    # By default a kubelet waits longer and longer before it starts the killed agent again.
    node.restart_kubelet(crashLoopBackOff={"maxContainerRestartPeriod": "2s"})
    node.offer("dra")
    node.wait(lambda: len(claims.devices(node)) == 2, "the node's devices")
    node.apply(claims.template("share", CORES, f"{MEMORY_MIB}Mi"))
    pods = [_pod(f"pod-{n}") for n in range(count)]
    file = node.host.write("pods.json", json.dumps(pods))
    began = time.monotonic()
    kubeconfig = node.cluster.kubeconfig("admin")
    words = ["-m", "cluster.measure.feed", kubeconfig, file, str(WINDOW), str(limit)]
    feed = subprocess.Popen(
        node.host.inside([sys.executable, *words]),
        env=node.host.environment(inside.ENV),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert feed.stdout
    kills, phases, gpus = Kills(node), dict[str, str](), dict[str, set[str]]()
    wrong: list[str] = []
    for line in feed.stdout:
        told = json.loads(line)
        if "claim" in told:
            gpus.setdefault(told["claim"], set()).add(told["device"])
            continue
        name = told["pod"]
        phases[name] = told["phase"]
        mine = gpus.get(name, set())
        if told["phase"] == "Succeeded" and (why := fault(node, name, mine)):
            wrong.append(f"{name}: {why}")
        if len(phases) % PODS_A_KILL == 0:
            kills.next()
            print(f"[soak] {len(phases)} pods, {kills.count}, {len(wrong)} wrong", flush=True)
    seconds = time.monotonic() - began
    created = [each["metadata"]["name"] for each in node.get("pods")["items"]]
    lost = [name for name in created if phases.get(name) != "Succeeded"]
    return {
        "pods": len(created),
        "seconds": round(seconds),
        "kills": kills.count,
        "restarted": _restarted(node),
        "lost": [_story(node, name) for name in lost],
        "wrong": wrong,
        "leaked": leaked(node),
    }


class Kills:
    """Kill -9 of the agent, the kubelet and containerd in turn. count: of each."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.count = {"agent": 0, "kubelet": 0, "containerd": 0}
        self._turns: Iterator[str] = itertools.cycle(self.count)

    def next(self) -> None:
        what = next(self._turns)
        self.count[what] += 1
        if what == "agent":
            # It may be on its way back from another kill.
            self._node.wait(lambda: len(self._node.agent_pids()) == 1, "the agent")
            self._node.signal_agent(signal.SIGKILL)
        elif what == "kubelet":
            self._node.kubelet.end(signal.SIGKILL)
            self._node.kubelet.start()
        else:
            self._node.engine.restart()


def _pod(name: str) -> dict[str, Any]:
    """It writes what it sees to a folder of the node: a log is lost with a killed containerd."""
    script = (
        f"{{ {SEEN}; }} >{FOLDER}/{name}.new && mv {FOLDER}/{name}.new {FOLDER}/{name}; sleep 1"
    )
    pod = claims.pod(name, "share", ["sh", "-c", script], "OnFailure")
    folder = {"path": FOLDER, "type": "DirectoryOrCreate"}
    pod["spec"]["volumes"] = [{"name": "seen", "hostPath": folder}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "seen", "mountPath": FOLDER}]
    return pod


def fault(node: Node, name: str, gpus: Collection[str]) -> str:
    """What the pod's last container saw that is not its claim's; "" if there is nothing."""
    try:
        with open(f"/proc/{node.host.pid}/root{FOLDER}/{name}") as file:
            return fault_of(file.read().splitlines(), gpus)
    except FileNotFoundError:
        return "it wrote nothing"


def fault_of(lines: Sequence[str], gpus: Collection[str]) -> str:
    """lines: of SEEN. gpus: the devices of the pod's claim."""
    if len(lines) != 2:
        return f"it wrote {lines}"
    found = json.loads(lines[1])["devices"]
    seen = [(devices.name_of(gpu["uuid"]), gpu["total_bytes"]) for gpu in found]
    wanted = [(device, MEMORY_MIB * MIB) for device in gpus]
    return "" if len(wanted) == 1 and seen == wanted else f"it saw {seen}, its claim has {wanted}"


def leaked(node: Node) -> list[str]:
    """What is left once the kubelet has unprepared the last claim."""

    def found() -> list[str]:
        state = node.product.state_dir(node.engine)
        specs = f"/proc/{node.host.pid}/root{names.CDI_CLAIM_FOLDER}"
        left = [*os.listdir(state + "/allocations"), *os.listdir(state + "/containers")]
        left += os.listdir(specs) if os.path.isdir(specs) else []
        items = node.get("resourceclaims")["items"]
        return left + [each["metadata"]["name"] for each in items]

    deadline = time.monotonic() + 120
    while found() and time.monotonic() < deadline:
        time.sleep(1)
    return found()


def _restarted(node: Node) -> int:
    """How many pods ran more than once."""
    statuses = [each["status"].get("containerStatuses", []) for each in node.get("pods")["items"]]
    return sum(each["restartCount"] > 0 for status in statuses for each in status)


def _story(node: Node, name: str) -> str:
    pod = node.get("pod", name)
    return f"{name}: {json.dumps(pod['status'])[:1000] if pod else 'deleted'}"


if __name__ == "__main__":
    sys.exit(main())
