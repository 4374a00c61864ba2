"""The ``/graph`` page: the node's GPUs, the tenants of each, and the links between GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vcuda_hook.live import views
from vcuda_hook.text import table
from vcuda_oci.model import topology

from ...web.page_frame import escape
from .node_state import View
from .usage_page import colours, no_gpu, page, summary

_Entry = Mapping[str, Any]

# Sizes in pixels; the limits on text in characters.
_COLUMN, _GAP, _MARGIN = 224, 16, 24
_GPU_HEIGHT, _TENANT_HEIGHT, _STEP, _HEAD = 62, 62, 72, 30
_ABREAST = 4  # GPUs in one frame of a NUMA node
_MOST_LETTERS, _MOST_SMALL_LETTERS = 24, 29


def render(view: View) -> bytes:
    content = no_gpu(view)
    if view.gpus:
        content = f'<section class="card wide">{_drawing(view, view.gpus)}</section>'
        content += _links(view.gpus, view.distances)
    return page(view.node, "graph", summary(view), content)


def _drawing(view: View, gpus: Sequence[_Entry]) -> str:
    parts, y, width = [], 4, 0
    for title, group in _by_numa_node(gpus):
        for at in range(0, len(group), _ABREAST):
            row = group[at : at + _ABREAST]
            tenants = [view.tenants_of(gpu["uuid"]) for gpu in row]
            most = max(len(of_gpu) for of_gpu in tenants)
            wide = len(row) * (_COLUMN + _GAP) - _GAP + 2 * _MARGIN
            high = _HEAD + _GPU_HEIGHT + most * _STEP + _MARGIN
            parts.append(
                f'<rect class="numa" x="1" y="{y}" width="{wide}" height="{high}" rx="12"/>'
                f'<text class="small" x="{_MARGIN}" y="{y + 20}">{escape(title)}</text>'
            )
            for column, (gpu, of_gpu) in enumerate(zip(row, tenants)):
                x = 1 + _MARGIN + column * (_COLUMN + _GAP)
                parts.append(_gpu(gpu, of_gpu, x, y + _HEAD))
            y, width = y + high + _GAP, max(width, wide + 2)
    return (
        f'<svg width="{width}" height="{y - _GAP + 4}" viewBox="0 0 {width} {y - _GAP + 4}" '
        f'role="img" aria-label="GPUs and their containers">{"".join(parts)}</svg>'
    )


def _links(gpus: Sequence[_Entry], distances: list[list[int]] | None) -> str:
    """A table of the link between each two GPUs; "" where the distances are unknown."""
    if distances is None or len(gpus) < 2:
        return ""
    head = "".join(f"<th>GPU {gpu['name']}</th>" for gpu in gpus)
    rows = []
    for at, gpu in enumerate(gpus):
        links = [escape(topology.in_words(far)) for far in distances[at]]
        links[at] = ""
        cells = "".join(f"<td>{link}</td>" for link in links)
        rows.append(f"<tr><td>GPU {gpu['name']}</td>{cells}</tr>")
    return (
        '<section class="card wide"><h2>Between them</h2>'
        '<table aria-label="Links between GPUs">'
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        "</section>"
    )


def _by_numa_node(gpus: Sequence[_Entry]) -> Iterator[tuple[str, list[_Entry]]]:
    """Yield the title and the GPUs of each NUMA node; those of an unknown one last."""
    for numa in sorted({gpu["numa"] for gpu in gpus}, key=lambda numa: (numa is None, numa)):
        title = "NUMA node unknown" if numa is None else f"NUMA node {numa}"
        yield title, [gpu for gpu in gpus if gpu["numa"] == numa]


def _gpu(gpu: _Entry, tenants: Sequence[_Entry], x: int, y: int) -> str:
    sick = views.condition(gpu)
    used = sum(entry["core_used_percent"] or 0 for entry in tenants)
    usage = f"{used:.0f} % used, {100 - gpu['free_core_percent']} % reserved"
    kind, third = ("small bad", sick) if sick else ("small", usage)
    parts = [
        f'<rect class="gpu{" sick" if sick else ""}" x="{x}" y="{y}" '
        f'width="{_COLUMN}" height="{_GPU_HEIGHT}" rx="10"><title>{escape(gpu["uuid"])}</title>'
        "</rect>",
        _text("", x + 12, y + 20, f"GPU {gpu['name']}"),
        _text("small", x + 12, y + 36, f"{gpu['model']}, {table.size(gpu['memory_bytes'])}"),
        _text(kind, x + 12, y + 52, third),
    ]
    below, spine = y + _GPU_HEIGHT, x + 10
    for number, (entry, colour) in enumerate(zip(tenants, colours(tenants))):
        top = below + 12 + number * _STEP
        parts.append(f'<path d="M{spine} {below}V{top + _TENANT_HEIGHT // 2}H{x + 22}"/>')
        parts.append(_tenant(entry, colour, x + 22, top))
    return "".join(parts)


def _tenant(entry: _Entry, colour: str, x: int, y: int) -> str:
    name = entry["name"]
    core, memory = entry["core_used_percent"], entry["memory_used_bytes"]
    busy = "" if core is None else f"{core:.0f} % of "
    used = "" if memory is None else f"{table.size(memory)} of "
    kind = "small"
    lines = (f"{busy}{entry['core_percent']} %", f"{used}{table.size(entry['memory_bytes'])}")
    if entry["usage"] == views.IMPOSSIBLE:
        kind, lines = "small bad", ("its figures", "cannot be true")
    return (
        f'<rect class="tenant" x="{x}" y="{y}" width="{_COLUMN - 22}" height="{_TENANT_HEIGHT}" '
        f'rx="8"><title>{escape(name)}</title></rect>'
        f'<rect class="{colour}" x="{x}" y="{y + 6}" width="4" height="{_TENANT_HEIGHT - 12}"/>'
        + _text("", x + 13, y + 20, name)
        + _text(kind, x + 13, y + 37, lines[0])
        + _text(kind, x + 13, y + 52, lines[1])
    )


def _text(kind: str, x: int, y: int, text: str) -> str:
    """A line of text, shortened in the middle if too long for its box: names differ at the ends."""
    most = _MOST_SMALL_LETTERS if kind else _MOST_LETTERS
    if len(text) > most:
        text = f"{text[: most // 2]}…{text[1 - most // 2 :]}"
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'
