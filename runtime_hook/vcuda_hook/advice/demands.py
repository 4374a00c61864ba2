"""The demands of all workloads of a host, as the file that the node agent keeps.

The agent's HTTP process writes it (`<state-dir>/http/demands.json`), `vcuda advise` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from . import demand, workload
from .demand import Demand
from .workload import Workload

FILE = "http/demands.json"
MOST_WORKLOADS = 512
# 512 workloads take some 1.5 MiB.
MOST_BYTES = 16 << 20
_VERSION = 1


def dump(demands: Mapping[Workload, Demand]) -> bytes:
    listed = [[list(each), of.as_json()] for each, of in demands.items()]
    tree = {"version": _VERSION, "workloads": listed}
    return json.dumps(tree, separators=(",", ":")).encode() + b"\n"


def parse(text: str | bytes) -> dict[Workload, Demand]:
    """Raises ValueError: not what `dump` returned."""
    try:
        tree = json.loads(text)
        if tree["version"] != _VERSION:
            raise ValueError("not demands of this version")
        return {
            workload.parse(fields): demand.parse(of)
            for fields, of in tree["workloads"][:MOST_WORKLOADS]
        }
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not demands of workloads: {error}") from error


def make_room(demands: dict[Workload, Demand]) -> None:
    """Drop the workloads that were seen longest ago, so that there is room for another one."""
    while len(demands) >= MOST_WORKLOADS:
        del demands[min(demands, key=lambda each: demands[each].last)]
