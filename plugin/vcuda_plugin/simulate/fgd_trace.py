"""Generate pods with the distribution of a public trace of a cluster of shared GPUs.

Number of GPUs of a pod: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, table 1, without
the pods that have no GPU. Size of a share: counted to the percent in 450 rows of the paper's trace
(alibaba/clusterdata, cluster-trace-gpu-v2023, openb_pod_list_default.csv).
"""

from __future__ import annotations

import random
from dataclasses import replace

from .trace_pod import TracePod

FGD, MULTI = "fgd", "multi"
# Number of GPUs, and relative frequency; 0: a share of one GPU. MULTI has no source: the public
# trace has few pods with several GPUs, the case in which a scheduler must keep GPUs together.
_GPUS = {FGD: {0: 378, 1: 480, 2: 2, 4: 2, 8: 5}, MULTI: {0: 600, 1: 200, 2: 80, 4: 60, 8: 60}}
MIXES = tuple(_GPUS)
# Percent of one GPU, and its number of rows.
_SHARES = {
    **{5: 3, 11: 4, 16: 8, 22: 15, 23: 13, 27: 1, 32: 27, 44: 1, 46: 17, 47: 60},
    **{48: 2, 55: 3, 59: 2, 65: 3, 81: 13},
}


def filling(seed: int, gpus: float, mix: str = FGD) -> list[TracePod]:
    """Return pods that request at least `gpus` GPUs in all. One arrives each second; none ends."""
    dice = random.Random(seed)  # noqa: S311 - not used for secrets
    pods: list[TracePod] = []
    asked = 0.0
    while asked < gpus:
        pods.append(_pod(dice, len(pods), mix))
        asked += pods[-1].gpus
    return pods


def coming_and_going(seed: int, gpus: float, number: int, mix: str = FGD) -> list[TracePod]:
    """Return `number` pods that request `gpus` GPUs at a time once the first have ended.

    One pod arrives each second. Durations are exponentially distributed, with the same mean for all
    sizes.
    """
    dice = random.Random(seed)  # noqa: S311 - not used for secrets
    pods = [_pod(dice, each, mix) for each in range(number)]
    mean = gpus * number / sum(pod.gpus for pod in pods)
    return [replace(pod, duration=round(dice.expovariate(1 / mean), 3)) for pod in pods]


def _pod(dice: random.Random, number: int, mix: str) -> TracePod:
    (count,) = dice.choices(list(_GPUS[mix]), list(_GPUS[mix].values()))
    (share,) = dice.choices(list(_SHARES), list(_SHARES.values()))
    core = 100 if count else share
    return TracePod(f"pod-{number:06}", number, core=core, count=count or 1)
