"""Whole GPUs of one pod are the nearest available ones."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from support.scheduler import clusters
from support.scheduler.clusters import ask, container, gpus_of, node
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.extender.model.annotations import CORDONED
from vcuda_plugin.extender.model.place import Placed

GPUS = 6
PAIRS = list(combinations(range(GPUS), 2))
OUT = st.sets(st.integers(0, GPUS - 1), max_size=2)


def matrix(far: list[int]) -> list[list[int]]:
    between = dict(zip(PAIRS, far))
    return [[between.get((min(a, b), max(a, b)), 0) for b in range(GPUS)] for a in range(GPUS)]


def total(distances: list[list[int]], gpus: tuple[int, ...]) -> int:
    return sum(distances[a][b] for a, b in combinations(gpus, 2))


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from([1, 20, 150, 600]), min_size=len(PAIRS), max_size=len(PAIRS)),
    st.integers(2, 3),
    st.sampled_from(["binpack", "spread", "topology"]),
    OUT,
    OUT,
    OUT,
)
def test_whole_gpus_are_the_nearest_of_those_that_the_pod_may_have(
    far: list[int], count: int, order: str, cordoned: set[int], not_wanted: set[int], held: set[int]
) -> None:
    distances = matrix(far)
    others = [GpuShare(f"GPU-n-{at}", 1, 10) for at in held]
    cluster = clusters.cluster(
        node(
            "n",
            gpus_of("n", *[16] * GPUS, distances=distances),
            annotations={CORDONED: ",".join(map(str, cordoned))},
        ),
        *(
            clusters.pod(share.uuid, container(core=10), node="n", shares={"main": [share]})
            for share in others
        ),
        order=order,
    )
    words = ",".join(f"GPU-n-{at}" for at in not_wanted)
    pod = ask(container(core=100 * count), annotations={"nvidia.com/nouse-gpuuuid": words})
    usable = [at for at in range(GPUS) if at not in cordoned | not_wanted | held]
    answer = cluster.find(cluster.nodes["n"], pod)
    if len(usable) < count:
        assert not isinstance(answer, Placed)
        return
    assert isinstance(answer, Placed)
    chosen = tuple(int(share.uuid.rpartition("-")[2]) for share in answer.containers["main"])
    assert set(chosen) <= set(usable)
    assert total(distances, chosen) == min(
        total(distances, each) for each in combinations(usable, count)
    )
