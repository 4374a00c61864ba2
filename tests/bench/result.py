"""One measured figure, and how a table of them is printed and kept."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Figure:
    """`value` in `unit` against `goal` (None: none is set), at most or at least.

    peers: what others need for the same, by name, in the same unit, as published or measured on a
    like machine. note: in which case the value was found.
    """

    name: str
    value: float
    unit: str
    goal: float | None
    peers: dict[str, float]
    note: str = ""
    more_is_better: bool = False

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value >= self.goal if self.more_is_better else self.value <= self.goal


def table(figures: Sequence[Figure]) -> str:
    """The figures as aligned text, peers beside them."""
    lines = [f"{'':34} {'measured':>10} {'goal':>8}  {'':4}  peers"]
    for figure in figures:
        goal = "" if figure.goal is None else f"{figure.goal:g}"
        verdict = {None: "", True: "met", False: "MISS"}[figure.met]
        peers = ", ".join(f"{name} {value:g}" for name, value in figure.peers.items())
        row = f"{figure.name:34} {figure.value:>10.3g} {goal:>8}  {verdict:4}"
        lines.append(f"{row}  {peers}  [{figure.unit}]  {figure.note}".rstrip())
    return "\n".join(lines)


def write(figures: Sequence[Figure], path: str) -> None:
    """Store them as a JSON list of objects."""
    rows = [{**dataclasses.asdict(figure), "met": figure.met} for figure in figures]
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")
