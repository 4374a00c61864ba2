"""A container's row of the ``/usage`` page; its name opens the list of its processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vcuda_hook.live import turn_figures, views
from vcuda_hook.live.usage import ProcessUse
from vcuda_hook.text import table

from ...web.page_frame import escape

# By allocation and UUID, the most memory first.
Processes = Mapping[tuple[str, str], Sequence[ProcessUse]]
# Of one container; the list says how many more there are.
MOST_PROCESSES = 20
_HINT = "pids are the container's; the host's: vcuda ps --processes"


def row(entry: Mapping[str, Any], colour: str, processes: Sequence[ProcessUse]) -> str:
    core, memory = entry["core_used_percent"], entry["memory_used_bytes"]
    return (
        f'<tr><td class="name">{_name(entry, colour, processes)}</td>'
        + _cell(
            "-" if core is None else f"{core:.0f} %",
            f"of {entry['core_percent']} %",
            core or 0.0,
            entry["core_percent"],
            colour,
        )
        + _cell(
            "-" if memory is None else table.size(memory),
            f"of {table.size(entry['memory_bytes'])}",
            memory or 0.0,
            entry["memory_bytes"],
            colour,
        )
        + f'<td class="notes">{_notes(entry)}</td></tr>'
    )


def _name(entry: Mapping[str, Any], colour: str, processes: Sequence[ProcessUse]) -> str:
    name = escape(entry["name"])
    shown = f'<i class="{colour}"></i>{name}'
    if entry["image"]:
        shown += f'<br><span class="of">{escape(entry["image"])}</span>'
    if not processes or entry["usage"] != views.READ:
        return shown
    is_off = views.is_off(entry)
    items = "".join(f"<li>{_process(each, is_off)}</li>" for each in processes[:MOST_PROCESSES])
    if len(processes) > MOST_PROCESSES:
        items += f"<li>and {len(processes) - MOST_PROCESSES} more</li>"
    count = "1 process" if len(processes) == 1 else f"{len(processes)} processes"
    return (
        f'<details id="{escape(entry["gpu_uuid"])} {escape(entry["id"])}">'
        f'<summary>{shown}<br><span class="of">{count}</span></summary>'
        f'<ul class="processes" aria-label="Processes of {name}">{items}'
        f'<li class="of">{_HINT}</li></ul></details>'
    )


def _process(process: ProcessUse, is_off: bool) -> str:
    memory = table.size(0 if is_off else process.memory_bytes)
    core = "" if process.core_percent is None else f", {process.core_percent:.0f} % of the GPU"
    return f"pid {process.pid_inside}: {memory}{core}"


def _cell(used: str, of: str, figure: float, whole: float, colour: str) -> str:
    width = min(100.0, 100 * figure / whole)
    return (
        f'<td>{escape(used)} <span class="of">{escape(of)}</span>'
        f'<svg class="mini" aria-hidden="true"><rect class="{colour}" width="{width:.1f}%" '
        'height="6" rx="3"/></svg></td>'
    )


def _notes(entry: Mapping[str, Any]) -> str:
    if entry["usage"] == views.IMPOSSIBLE:
        return '<span class="bad">its figures cannot be true</span>'
    if entry["usage"] == views.UNREADABLE:
        return '<span class="bad">its usage page cannot be read</span>'
    notes = [*filter(None, [views.suspended(entry)]), views.policy(entry)]
    if entry["waited_seconds"] >= 1:
        notes.append(f"waited {entry['waited_seconds']:,.0f} s")
    if entry["refusals"]:
        notes.append(f"{entry['refusals']:,} refused allocations")
    notes += filter(None, [turn_figures.waits(entry)])
    return escape(", ".join(notes))
