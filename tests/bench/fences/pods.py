"""Pods with GPU instances: how often the node refuses one that the extender placed there.

Pods of random sizes come and go in a cluster of H100s in MIG mode. The extender chooses the node by
its scores, and the GPU; the node puts the instance where it leaves most room. What the nodes report
comes late, as in a cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from bench.result import Figure
from support.gpu.mig_tables import profiles
from support.ledger.samples import GIB
from support.scheduler import clusters
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.mig import Layout
from vcuda_oci.placement import mig
from vcuda_plugin.extender.cluster.objects import node_of
from vcuda_plugin.extender.filter.fit import fit
from vcuda_plugin.extender.filter.score import scores
from vcuda_plugin.extender.model.place import Placed
from vcuda_plugin.kube.node_gpus import NodeGpus

PODS = 1000
NODES, GPUS = 8, 2
_CORES = (10, 10, 20, 42, 57, 100)
_LATE_EVENTS = 3  # pods that come or go before the nodes' reports
_ENDING = 0.4
_MOST_PERCENT = 1.0
_SEED = 19


class Nodes:
    """The nodes' own GPUs, and what they report."""

    def __init__(self) -> None:
        self.layouts: dict[str, dict[str, Layout]] = {}
        for number in range(NODES):
            uuids = [f"GPU-{number}-{at}" for at in range(GPUS)]
            self.layouts[f"n{number}"] = {
                uuid: Layout(uuid, 80 * GIB, profiles(), ()) for uuid in uuids
            }

    def reports(self) -> list[dict[str, object]]:
        found = []
        for name, layouts in self.layouts.items():
            gpus = [
                Gpu(uuid, at, -1, 80 * GIB, "H100", divided=True) for at, uuid in enumerate(layouts)
            ]
            reported = NodeGpus(gpus, profiles=dict.fromkeys(layouts, profiles()))
            reported.instances.update({uuid: one.taken for uuid, one in layouts.items()})
            found.append(clusters.node(name, reported))
        return found


def measure(say: Callable[[str], None]) -> list[Figure]:
    nodes, chance = Nodes(), random.Random(_SEED)
    cluster = clusters.cluster(*nodes.reports())
    live: dict[str, tuple[str, str, tuple[int, int, int]]] = {}
    refused = full = bound = 0
    for number in range(PODS):
        if live and chance.random() < _ENDING:
            uid = chance.choice(list(live))
            name, uuid, place = live.pop(uid)
            taken = list(nodes.layouts[name][uuid].taken)
            taken.remove(place)
            nodes.layouts[name][uuid] = nodes.layouts[name][uuid].replaced(taken=tuple(taken))
            cluster.end_pod(uid)
        uid, core = f"p{number}", chance.choice(_CORES)
        pod = clusters.facts(
            clusters.pod(
                uid,
                clusters.container(core=core),
                annotations={"vcuda.io/isolation": "mig"},
                uid=uid,
            )
        )
        assert pod.ask
        cluster.put_pod(pod)
        fitting = fit(cluster, pod.ask, list(nodes.layouts)).fitting
        if number % _LATE_EVENTS == 0:
            for report in nodes.reports():
                cluster.put_node(node_of(report))
        if not fitting:
            full += 1
            cluster.end_pod(uid)
            continue
        ranked = sorted(zip(scores(cluster, pod.ask, fitting), fitting), key=lambda one: -one[0])
        name = ranked[0][1]
        placed = cluster.find(cluster.nodes[name], pod.ask)
        if not isinstance(placed, Placed):
            full += 1
            cluster.end_pod(uid)
            continue
        cluster.assume(pod, name, placed, number)
        bound += 1
        uuid = placed.holds[0].uuid
        layout = nodes.layouts[name][uuid]
        found = mig.choose([layout], core, 0)
        if not isinstance(found, mig.Place):
            refused += 1
            cluster.end_pod(uid)
            continue
        live[uid] = name, uuid, (found.profile.id, found.start, found.profile.width)
        nodes.layouts[name][uuid] = mig.added(layout, found.profile, found.start)
    note = f"{bound} of {PODS} pods bound, {full} waited, {refused} refused by their node"
    say(f"pods with instances: {note}")
    percent = 100 * refused / max(1, bound)
    name = "fences: pods refused by their node"
    return [Figure(name, percent, "% of those bound", _MOST_PERCENT, {}, note)]
