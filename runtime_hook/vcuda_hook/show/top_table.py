"""The table of a GPU's tenants in ``vcuda top``, with their processes: pure.

A name is cut before figures; notes are cut at the edge of the screen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..live import turn_figures, views
from ..text import table
from . import process_rows
from .process_rows import ProcessRow

_Entry = Mapping[str, Any]

# A text and its colour (SGR parameters, or "").
Line = list[tuple[str, str]]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# From xterm's 256 colours: hues like those by Okabe and Ito, which colour-blind people can
# distinguish, with a contrast of 3:1 to both black and white: the terminal's background is unknown.
COLOURS = ("38;5;166", "38;5;32", "38;5;29", "38;5;136", "38;5;169", "38;5;61", "38;5;244")
DIM, USED = "2", "7;"
# HELD is shown while the containers of a GPU take turns.
_HEADINGS: tuple[str, ...] = ("COMPUTE", "MEMORY", "HELD", "WAITS", "POLICY")
_HELD = _HEADINGS.index("HELD")
# A name shorter than that says little; notes are cut at the edge of the screen first.
_LEAST_NAME, _LEAST_NOTES = 16, 24
# On a narrow screen names are cut to this before compute and memory.
_SHORTEST_NAME = 8


def lines(
    tenants: Sequence[_Entry], width: int, processes: Callable[[str, str], Sequence[ProcessRow]]
) -> list[Line]:
    """The tenants of one GPU, each with its processes. processes: as More has it."""
    if not tenants:
        return []
    headings, *rows = (_HEADINGS, *map(_row, tenants))
    if all(entry["held_percent"] is None for entry in tenants):
        headings, *rows = (row[:_HELD] + row[_HELD + 1 :] for row in (headings, *rows))
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    names = [seen(entry["name"]) for entry in tenants]
    below = [processes(entry["id"], entry["gpu_uuid"]) for entry in tenants]
    labels = [f"  {_label(each)}" for its in below for each in its[: process_rows.MOST]]
    others = sum(w + 2 for w in (*widths[:-1], min(widths[-1], _LEAST_NOTES)))
    beside = max(_SHORTEST_NAME, width - 2 - sum(w + 2 for w in widths[:2]))
    room = max(min(_LEAST_NAME, beside), width - 4 - others)
    longest = min(room, max(map(len, ("CONTAINER", *names, *labels))))
    shown = [table.cut(name, longest).ljust(longest) for name in names]
    # A figure without its last digit would be another one; notes are cut at the edge.
    ends = itertools.accumulate((w + 2 for w in widths[:-1]), initial=2 + longest)
    whole = sum(end <= width for end in ends) - 1
    if whole < len(widths) - 1:
        headings, *rows = (row[: max(1, whole)] for row in (headings, *rows))
    found: list[Line] = [[(f"  {'CONTAINER'.ljust(longest)}  {table.line(headings, widths)}", DIM)]]
    for number, (entry, name, row, its) in enumerate(zip(tenants, shown, rows, below)):
        letter, colour = LETTERS[number % len(LETTERS)], COLOURS[number % len(COLOURS)]
        found.append([(letter, USED + colour), (f" {name}  {table.line(row, widths)}", "")])
        for each in its[: process_rows.MOST]:
            label = table.cut(_label(each), longest - 2).ljust(longest - 2)
            found.append([(f"    {label}  {table.line(_figures(each, entry), widths)}", "")])
        left = len(its) - process_rows.MOST
        found += [[(f"    and {table.count(left, 'more process', 'es')}", DIM)]] if left > 0 else []
    return found


def _label(process: ProcessRow) -> str:
    return f"{process.pid} {seen(process.command)}"


def _figures(process: ProcessRow, entry: _Entry) -> tuple[str, str]:
    core, memory = process.core_percent, process.memory_bytes
    if entry["usage"] != views.READ:
        core = memory = None
    elif memory is not None and views.is_off(entry):
        memory = 0
    return table.percent(core), table.size(memory)


def _row(entry: _Entry) -> tuple[str, ...]:
    core, memory, held, waited = (
        entry[key]
        for key in ("core_used_percent", "memory_used_bytes", "held_percent", "waited_percent")
    )
    # What matters most comes first: a narrow screen cuts the rest.
    notes = ["its figures cannot be true"] if entry["usage"] == views.IMPOSSIBLE else []
    notes += filter(None, [views.suspended(entry)])
    notes.append(views.policy(entry))
    reason = turn_figures.waits(entry)
    if reason:
        notes.append(seen(reason))
    if entry["memory_managed"]:
        notes.append("managed memory")
    if entry["refusals"]:
        notes.append(f"{entry['refusals']} refusals")
    return (
        f"{'-' if core is None else f'{core:.0f}'} of {entry['core_percent']} %",
        _of(memory, entry["memory_bytes"]),
        table.percent(held),
        table.percent(waited),
        "; ".join(notes),
    )


def _of(used: int | None, share: int) -> str:
    """Both in one unit if they have the same: a phone's screen has 40 columns."""
    whole = table.size(share)
    if used is None:
        return f"- of {whole}"
    return f"{table.size(used).removesuffix(whole[whole.index(' ') :])} of {whole}"


def seen(text: str) -> str:
    """One character for each column: a name must not control the terminal or shift its line."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
