"""``make soak-pods``: 10,000 pods through CRI; the agent's memory does not grow.

Exit code 0 only if no pod saw anything but its share, nothing is left, and neither memory nor
descriptors of the agent's processes have grown in the second half. In the first its bounded tables
fill up, and the allocator finds how much it needs at most. Of fewer than a thousand pods the half
is too early for that, so memory is not judged, and descriptors only if each tenth has more.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence

# Run as `python -m tests.release.soak.pods`; pytest finds the packages below tests/, as this does.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from support import compiled
from support.bundle import image, rootfs
from support.engines.base import IMAGE, Files
from support.host import own_run
from support.kubelet.pod_lives import AGENT, Lives, processes
from support.kubelet.pod_node import node
from support.waiting import until
from vcuda_oci.start import page_keeper
from vcuda_plugin.agent.ledger import sweep

WORKERS = 16
MOST_GROWTH_KIB = 1024
# Of fewer the second half still grows into what the agent needs.
LEAST_PODS = 1000
LOOKS, FEW_LOOKS = 10, 3  # few, where growth is not judged


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak-pods")
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--json-out", default="build/soak-pods.json")
    options = parser.parse_args()
    own_run.sweep()
    folder = own_run.scratch_folder()
    try:
        with node(files_in(folder), folder) as lives:
            report = soak(lives, options.pods)
    finally:
        shutil.rmtree(folder)
    with open(options.json_out, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    print(json.dumps(report, indent=1))
    return 1 if report["faults"] else 0


def soak(lives: Lives, pods: int) -> dict[str, object]:
    tenths, sizes = pods // 10, []
    for tenth in range(10):
        lives.run(tenths, WORKERS, killing=False)
        sizes.append(agent_size(lives, LOOKS if pods >= LEAST_PODS else FEW_LOOKS))
        print(f"[soak] {(tenth + 1) * tenths} pods, agent {sizes[-1]}", flush=True)
        if lives.faults:
            break
    half, last = sizes[len(sizes) // 2 - 1], sizes[-1]
    faults = list(lives.faults)
    if pods >= LEAST_PODS and last["kib"] > half["kib"] + MOST_GROWTH_KIB:
        faults.append(f"the agent grew from {half['kib']} to {last['kib']} KiB")
    if grows([size["descriptors"] for size in sizes[len(sizes) // 2 - 1 :]], pods >= LEAST_PODS):
        faults.append(f"descriptors: {half['descriptors']}, then {last['descriptors']}")
    # A pod that ends keeps its share until its sandbox is gone, so the agent's sweep gives it back.
    with contextlib.suppress(AssertionError):
        until(lambda: not lives.leftovers(), seconds=3 * sweep.PERIOD_SECONDS)
        until(lambda: not open_pages(lives), seconds=3 * page_keeper.PERIOD_SECONDS)
    faults += [f"left: {name}" for name in (*lives.leftovers(), *open_pages(lives))]
    return {"pods": dict(lives.deaths), "agent": sizes, "faults": faults}


def grows(counts: Sequence[int], is_whole: bool) -> bool:
    """Whether the counts of the second half say that something is not closed.

    is_whole: of so many pods that all that is opened once is open at half. Of fewer, a
    process may open it later, in one step: only growth from each look to the next is a leak.
    """
    if is_whole:
        return counts[-1] > counts[0]
    return all(before < after for before, after in itertools.pairwise(counts))


def agent_size(lives: Lives, count: int) -> dict[str, int]:
    """At rest: the least of some looks, since a call in flight has memory and descriptors too."""
    looks = []
    for _ in range(count):
        looks.append(_size_now(lives))
        time.sleep(0.2)
    return {what: min(look[what] for look in looks) for what in looks[0]}


def _size_now(lives: Lives) -> dict[str, int]:
    """Private memory and descriptors of all the agent's processes together.

    Descriptors of pages do not count: each share has two, and a sweep releases many shares at once.
    """
    kib = descriptors = 0
    for pid in _agents(lives):
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as rollup:
            kib += next(int(row.split()[1]) for row in rollup if row.startswith("Private_Dirty:"))
        descriptors += sum(not _is_page(path) for path in _opened(pid))
    return {"kib": kib, "descriptors": descriptors}


def open_pages(lives: Lives) -> list[str]:
    """Pages of containers, ended ones too, that the agent's processes have open."""
    return [path for pid in _agents(lives) for path in _opened(pid) if _is_page(path)]


def _agents(lives: Lives) -> list[int]:
    ours = ((pid, line) for pid, line in processes() if lives.product.prefix in line)
    return [pid for pid, line in ours if any(word in line for word in AGENT)]


def _opened(pid: int) -> Iterator[str]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(f"/proc/{pid}/fd/{name}")


def _is_page(path: str) -> bool:
    return "/containers/" in path or "/ended/" in path


def files_in(folder: str) -> Files:
    """The tests' image, made in a folder."""
    tree, layer, packed = folder + "/rootfs", folder + "/layer.tar", folder + "/image"
    rootfs.build(tree, {"/usr/bin/vcuda-workload": os.path.abspath("build/softgpu/vcuda-workload")})
    rootfs.as_tar(tree, layer)
    image.write(packed, layer, IMAGE)
    return Files(tree, layer, packed, compiled.library(folder, "no_setrlimit"))


if __name__ == "__main__":
    sys.exit(main())
