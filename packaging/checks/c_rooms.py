"""Refuses an `#include` that goes up, or round in a circle, through the rooms of a C source tree.

A room is a folder of a tree in TREES. It may include headers of the rooms on lower layers, by room
("pages/slot.h"), and its own. A source and the header of its name are one unit; units include each
other in no circle, but for those that a tree lists under `circles`, each with its reason. A source
declares nothing `extern`: a declaration by hand would hide what it uses.

Usage: c_rooms.py [ROOT], the repository
"""

from __future__ import annotations

import glob
import graphlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_INCLUDE = re.compile(r'^#\s*include "([^"]+)"', re.MULTILINE)
_EXTERN = re.compile(r"^extern\b[^;]*", re.MULTILINE)


class Tree(NamedTuple):
    """layers: rooms from the top down; a line's rooms do not include each other. circles: units
    that may include each other, as "room/unit room/unit", and why."""

    folder: str
    layers: Sequence[str]
    circles: dict[str, str]


TREES = [
    Tree(
        "libvcuda/shim",
        [
            "entry",
            "context view copy allocate",
            "compute",
            "meter memory",
            "gpu_time charge",
            "pages",
            "thread",
        ],
        {"memory/blocks memory/bindings": "a multicast object is a block, and ends its bindings"},
    ),
    Tree("oci/launcher", ["runtime hooks", "handover", "settings", "musl"], {}),
    Tree("libvcuda/turns", ["keeper", "tenant"], {}),
    Tree(
        "libvcuda/softgpu",
        [
            "launch create",
            "checkpoint context module copy nvml",
            "array",
            "stream",
            "virtual",
            "memory",
            "graph",
            "driver smi workload clock mps",
            "mig",
            "engine",
            "state",
        ],
        {},
    ),
]


def faults(tree: Tree, root: str = ".") -> Iterator[str]:
    """One line for each fault of the tree below `root`."""
    layer_of = {room: at for at, line in enumerate(tree.layers) for room in line.split()}
    folder = os.path.join(root, tree.folder)
    files = sorted(glob.glob(f"{folder}/**/*.[ch]", recursive=True))
    names = {os.path.relpath(file, folder) for file in files}
    graph: dict[str, set[str]] = {}
    for file in files:
        name = os.path.relpath(file, folder)
        room = os.path.dirname(name)
        if room not in layer_of:
            yield f"{name}: {room or 'the top'} is no room of TREES in packaging/checks/c_rooms.py"
            continue
        with open(file, encoding="utf-8") as source:
            text = source.read()
        if name.endswith(".c"):
            yield from (f"{name}: {line}; include its header" for line in _EXTERN.findall(text))
        for include in _INCLUDE.findall(text):
            to = os.path.dirname(include)
            if to != room and layer_of.get(to, len(tree.layers)) <= layer_of[room]:
                yield f"{name}: includes {include}, which is not on a lower layer"
            elif not to and os.path.join(room, include) in names:
                yield f"{name}: includes {include} without its room"
            if include in names:
                graph.setdefault(_unit(name, tree), set()).add(_unit(include, tree))
    try:
        graphlib.TopologicalSorter({u: uses - {u} for u, uses in graph.items()}).prepare()
    except graphlib.CycleError as error:
        yield f"circle of includes: {' > '.join(reversed(error.args[1]))}"


def _unit(name: str, tree: Tree) -> str:
    unit = os.path.splitext(name)[0]
    return next((circle for circle in tree.circles if unit in circle.split()), unit)


def main(arguments: list[str]) -> int:
    root = arguments[0] if arguments else "."
    found = [f"{tree.folder}/{fault}" for tree in TREES for fault in faults(tree, root)]
    print("".join(f"{fault}\n" for fault in found), end="", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
