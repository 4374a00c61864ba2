"""The ``/usage`` page: per GPU, bars for compute and memory with each tenant's usage and share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vcuda_hook.live import views
from vcuda_hook.text import table

from ...web import page_frame
from ...web.page_frame import COLOURS, escape
from . import container_cells, history
from .history import Mark, Points
from .node_state import View

_Entries = Sequence[Mapping[str, Any]]
_History = Mapping[str, Mapping[str, Points]]

_LINKS = (("usage", "Usage"), ("graph", "Graph"), ("metrics", "Metrics"))
_LEGEND = "Upper part of a bar: used. Lower part: asked for."


def render(view: View, past: _History | None = None, marks: Sequence[Mark] = ()) -> bytes:
    """past: of the GPUs, as History has it. marks: of the hour before the view, oldest first."""
    past = past or {}
    parts = []
    for gpu in view.gpus or []:
        its = [(view.taken - mark.time, mark) for mark in marks if mark.gpu == gpu["uuid"]]
        drawn = _past(gpu, past.get(gpu["uuid"], {}), its)
        parts.append(_gpu(gpu, view.tenants_of(gpu["uuid"]), drawn, view.processes))
    known = {gpu["uuid"] for gpu in view.gpus or []}
    others = dict.fromkeys(entry["gpu_uuid"] for entry in view.tenants)
    parts += [
        _elsewhere(uuid, view.tenants_of(uuid), view.processes)
        for uuid in others
        if uuid not in known
    ]
    if not view.gpus:
        parts.insert(0, no_gpu(view))
    for name in view.broken:
        parts.append(_note(f"{name} is not a whole record: what it holds is unknown."))
    return page(view.node, "usage", f"{summary(view)}. {_LEGEND}", "".join(parts))


def page(node: str, here: str, summary: str, content: str) -> bytes:
    """A complete page. here: its path. content: HTML in which the caller has escaped all names."""
    frame = page_frame.Frame(f"{node}: GPUs", f"on {node}", _LINKS, here)
    return page_frame.page(frame, summary, content)


def no_gpu(view: View) -> str:
    """A note why the page shows no GPU."""
    if view.gpus is None:
        return _note("The driver has not answered yet: the GPUs are not known.")
    return _note("This node has no GPU.")


def summary(view: View) -> str:
    gpus, tenants = len(view.gpus or []), len({entry["id"] for entry in view.tenants})
    sick = sum(gpu["unhealthy"] is not None for gpu in view.gpus or [])
    text = f"{_count(gpus, 'GPU')}, {_count(tenants, 'container')}"
    return text + (f", {sick} unhealthy" if sick else "")


def colours(entries: _Entries) -> list[str]:
    """A CSS class for each entry; neighbours get different colours."""
    return [f"c{number % COLOURS}" for number in range(len(entries))]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _gpu(
    gpu: Mapping[str, Any], tenants: _Entries, past: str, processes: container_cells.Processes
) -> str:
    sick = views.condition(gpu)
    state = f'<span class="state bad">{escape(sick)}</span>' if sick else ""
    return (
        f'<section class="card"><h2>GPU {gpu["name"]} · {escape(gpu["model"])}'
        f'<span class="soft">{escape(gpu["uuid"])}</span>'
        f"{state or '<span class=state>healthy</span>'}</h2>"
        f"{_compute(gpu, tenants)}{_memory(gpu, tenants)}{past}{_sensors(gpu)}"
        f"{_table(tenants, 'GPU ' + gpu['name'], processes)}</section>"
    )


def _elsewhere(uuid: str, tenants: _Entries, processes: container_cells.Processes) -> str:
    return (
        f'<section class="card"><h2>{escape(uuid)}<span class="state bad">not seen on this node'
        f"</span></h2>{_table(tenants, uuid, processes)}</section>"
    )


def _note(text: str) -> str:
    return f'<section class="card soft">{escape(text)}</section>'


def _compute(gpu: Mapping[str, Any], tenants: _Entries) -> str:
    asked = [entry["core_percent"] for entry in tenants]
    used = [entry["core_used_percent"] or 0.0 for entry in tenants]
    figures = f"{sum(used):.0f} % used, {100 - gpu['free_core_percent']} % reserved"
    if gpu["lost_percent"]:
        figures += f", {gpu['lost_percent']:.0f} % lost"
    return _whole("Compute", _bar(tenants, asked, used, 100, max(100, *asked, sum(used))), figures)


def _memory(gpu: Mapping[str, Any], tenants: _Entries) -> str:
    asked = [entry["memory_bytes"] for entry in tenants]
    used = [entry["memory_used_bytes"] or 0 for entry in tenants]
    there = gpu["memory_bytes"]
    figures = (
        f"{table.size(sum(used))} used, {table.size(sum(asked))} promised of {table.size(there)}"
    )
    return _whole("Memory", _bar(tenants, asked, used, there, max(there, sum(asked), 1)), figures)


def _sensors(gpu: Mapping[str, Any]) -> str:
    text = table.sensors(gpu["sensors"])
    return f'<p class="sensors soft">{escape(text)}</p>' if text else ""


def _past(
    gpu: Mapping[str, Any], past: Mapping[str, Points], marks: Sequence[tuple[float, Mark]]
) -> str:
    """Compute and memory of the last hour as two lines, at the right what is now; events as
    strokes across them. marks: with their age in seconds, the last one the newest."""
    if not past or len(past[history.COMPUTE]) < 2:
        return ""
    drawn, said = "", []
    for name, word, how, whole in (
        (history.COMPUTE, "compute", "line", 100.0),
        (history.MEMORY, "memory", "dashed", float(gpu["memory_bytes"])),
    ):
        known = [point for point in past[name] if point is not None]
        drawn += f'<polyline class="{word}" points="{_line(past[name], whole)}"/>'
        if known:
            said.append(f"{word} ({how}) {100 * sum(known) / len(known) / whole:.0f} %")
    minutes = len(past[history.COMPUTE]) * history.STEP_SECONDS / 60
    says = f"{minutes:.0f} min, on average {', '.join(said) or 'unknown'}"
    for age, mark in marks:
        x = history.STEPS - age / history.STEP_SECONDS
        drawn += (
            f'<line class="event" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="40">'
            f"<title>{escape(_event(age, mark))}</title></line>"
        )
    if marks:
        says += f"; {_count(len(marks), 'event')} (strokes), the last: {_event(*marks[-1])}"
    box = f'class="past" viewBox="0 0 {history.STEPS} 40" preserveAspectRatio="none"'
    return _whole("History", drawn, says, box)


def _event(age: float, mark: Mark) -> str:
    return f"{mark.kind} {mark.name}".strip() + f", {table.age(age)} ago"


def _line(points: Points, whole: float) -> str:
    """Coordinates with the newest point at the right; an unknown one is left out."""
    first = history.STEPS - len(points)
    return " ".join(
        f"{first + number},{39 - 38 * min(1.0, point / whole):.1f}"
        for number, point in enumerate(points)
        if point is not None
    )


def _whole(title: str, drawn: str, figures: str, box: str = 'class="bar"') -> str:
    """drawn: the content of the SVG element with the attributes of box."""
    figures = escape(figures)
    return (
        f'<div class="whole"><span>{title}</span>'
        f'<svg {box} role="img" aria-label="{title}: {figures}">{drawn}</svg>'
        f'<span class="says">{figures}</span></div>'
    )


def _bar(
    tenants: _Entries, asked: Sequence[float], used: Sequence[float], there: float, scale: float
) -> str:
    """A bar with usage in its upper part and shares in its lower part.

    there: what the GPU has. scale: the value at the right edge; if it is larger than `there`, a
    line marks where the GPU's own capacity ends.
    """
    rects = ""
    for figures, kind, y, height in ((used, "used", 0, 17), (asked, "asked", 17, 9)):
        x = 0.0
        for entry, figure, colour in zip(tenants, figures, colours(tenants)):
            width = 100 * figure / scale
            rects += (
                f'<rect class="{colour} {kind}" x="{x:.2f}%" width="{width:.2f}%" y="{y}" '
                f'height="{height}"><title>{escape(entry["name"])}</title></rect>'
            )
            x += width
    if scale > there:
        at = 100 * there / scale
        rects += f'<line x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="26"/>'
    return rects


def _table(tenants: _Entries, gpu: str, processes: container_cells.Processes) -> str:
    if not tenants:
        return '<p class="soft">It has no tenants.</p>'
    rows = "".join(
        container_cells.row(entry, colour, processes.get((entry["id"], entry["gpu_uuid"]), ()))
        for entry, colour in zip(tenants, colours(tenants))
    )
    heads = "".join(f"<th>{title}</th>" for title in ("Container", "Compute", "Memory", ""))
    caption = f'<caption class="hidden">Containers of {escape(gpu)}</caption>'
    return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
