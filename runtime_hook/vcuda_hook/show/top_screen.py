"""The screen of ``vcuda top`` for one sample, as lines of text with colours: pure.

Each tenant has a letter on each GPU: in the bars A is what A uses, a the rest of its share, so that
the picture is readable without colours.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..live import turn_figures, views
from ..text import table

_Entry = Mapping[str, Any]

# A text and its colour (SGR parameters, or "").
Line = list[tuple[str, str]]
NAME, COMPUTE, MEMORY, WAITS = "name", "compute", "memory", "waits"
ORDERS = (NAME, COMPUTE, MEMORY, WAITS)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Of xterm's 256: hues like those by Okabe and Ito, which colour-blind people can distinguish; 3:1
# against black and white, because a program cannot know the terminal's ground.
_COLOURS = ("38;5;166", "38;5;32", "38;5;29", "38;5;136", "38;5;169", "38;5;61", "38;5;244")
_BOLD, _DIM, _BAD, _USED = "1", "2", "1;31", "7;"
# HELD is shown while the containers of a GPU take turns.
_HEADINGS: tuple[str, ...] = ("COMPUTE", "MEMORY", "HELD", "WAITS", "POLICY")
_HELD = _HEADINGS.index("HELD")
# A name shorter than that says little; notes are cut at the edge of the screen first.
_LEAST_NAME, _LEAST_NOTES, _LEAST_BAR = 16, 24, 10
# On a narrow screen names are cut to this before compute and memory.
_SHORTEST_NAME = 8


class More(NamedTuple):
    """What is shown of a GPU beside the sample. past: a sparkline of so many characters and what it
    shows, as History.line. sensors: a line.
    """

    past: Callable[[str, int], tuple[str, str]] = lambda uuid, width: ("", "")
    sensors: Callable[[str], str] = lambda uuid: ""


_NO_MORE = More()


def screen(view: _Entry, width: int, order: str, more: More = _NO_MORE) -> list[Line]:
    """Each GPU with its bars and tenants, then other messages."""
    lines: list[Line] = []
    known = [gpu["uuid"] for gpu in view["gpus"]]
    for gpu in view["gpus"]:
        tenants = _sorted([e for e in view["tenants"] if e["gpu_uuid"] == gpu["uuid"]], order)
        lines += [*_gpu(gpu, tenants, width, more), *_table(tenants, width), []]
    for uuid in dict.fromkeys(entry["gpu_uuid"] for entry in view["tenants"]):
        if uuid not in known:
            tenants = _sorted([e for e in view["tenants"] if e["gpu_uuid"] == uuid], order)
            lines += [[(f"{_seen(uuid)} is not seen on this host", _BOLD)]]
            lines += [*_table(tenants, width), []]
    unread = {entry["id"] for entry in view["tenants"] if entry["usage"] == views.UNREADABLE}
    if unread:
        of = _count(len(unread), "container")
        lines += [[(f"The use of {of} is unknown: only root may read a usage page.", _BAD)], []]
    if not known:
        lines += [[("No GPU is known: 'vcuda gpus' says why.", "")], []]
    for name in view["broken_records"]:
        lines += [[(f"{_seen(name)} is not a whole record: see 'vcuda ps'", _BAD)], []]
    return lines[:-1]


def title(view: _Entry, order: str) -> Line:
    containers = len({entry["id"] for entry in view["tenants"]})
    when = time.strftime("%H:%M:%S", time.localtime(view["time"]))
    counts = f"{_count(len(view['gpus']), 'GPU')}, {_count(containers, 'container')}"
    return [("vcuda top", _BOLD), (f" {when}, {counts}, by {order}", "")]


def drawn(line: Line, width: int, with_colour: bool) -> str:
    """The line for a terminal, at most `width` wide."""
    text = ""
    for part, colour in line:
        part = part[: max(0, width)]
        width -= len(part)
        text += f"\x1b[{colour}m{part}\x1b[0m" if with_colour and colour and part else part
    return text if with_colour else text.rstrip()


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _sorted(tenants: list[_Entry], order: str) -> list[_Entry]:
    keys: dict[str, Callable[[_Entry], float]] = {
        COMPUTE: lambda entry: entry["core_used_percent"] or 0,
        MEMORY: lambda entry: entry["memory_used_bytes"] or 0,
        WAITS: lambda entry: entry["waited_percent"] or 0,
    }
    by_name = sorted(tenants, key=lambda entry: (entry["name"], entry["id"]))
    return sorted(by_name, key=keys[order], reverse=True) if order in keys else by_name


_HELP = (
    ("keys", ""),
    ("q F10", "quit"),
    ("? h F1", "this help"),
    ("n c m w", "order by name, compute, memory, waits"),
    ("N P M > F6", "as in htop: by name, compute, memory; the next order"),
    ("up down space", "scroll; Home, End, Page Up, Page Down"),
    ("g", "show or hide the history of each GPU"),
    ("what is shown", ""),
    ("AAAaaa...", "what container A uses, the rest of its share, what is free"),
    ("history", "compute, the newest at the right: the agent's last hour"),
    ("COMPUTE MEMORY", "used and share; a container reports its own use"),
    ("HELD", "part of the time in which it had its turn of the GPU"),
    ("WAITS", "part of the time in which its launches waited"),
    ("POLICY", "and why it waits; 'vcuda why NAME' says more"),
)


def help() -> list[Line]:
    """What the keys do and what is shown, in 80 columns."""
    lines: list[Line] = [
        [("  " + heading.ljust(18), ""), (text, "")] if text else [(heading, _BOLD)]
        for heading, text in _HELP
    ]
    return [*lines, [], [("any key returns", _DIM)]]


def _gpu(gpu: _Entry, tenants: Sequence[_Entry], width: int, more: More) -> list[Line]:
    head: Line = [(f"GPU {gpu['name']}", _BOLD)]
    head.append((f"  {_seen(gpu['model'])}  {table.short(_seen(gpu['uuid']))}", ""))
    sensors = more.sensors(gpu["uuid"])
    if sensors:
        head.append((f"  {sensors}", ""))
    if condition := views.condition(gpu):
        word, colon, why = condition.partition(":")
        head.append((f"  {word.upper()}{colon}{_seen(why)}", _BAD))
    unread = any(entry["usage"] == views.UNREADABLE for entry in tenants)
    busy = [(e["core_used_percent"] or 0, e["core_percent"]) for e in tenants]
    held = [(e["memory_used_bytes"] or 0, e["memory_bytes"]) for e in tenants]
    reserved, promised = 100 - gpu["free_core_percent"], gpu["promised_memory_bytes"]
    used_core = "unknown" if unread else f"{sum(used for used, _ in busy):.0f} %"
    used_memory = "unknown" if unread else table.size(sum(used for used, _ in held))
    lost = gpu["lost_percent"]
    says = (
        f" {used_core} used, {reserved} % reserved" + (f", {lost:.0f} % lost" if lost else ""),
        f" {used_memory} of {table.size(gpu['memory_bytes'])} used, "
        f"{table.size(promised)} promised",
    )
    wide = width - 11 - max(map(len, says))
    # On a phone's screen the text is below the bar.
    below = wide < _LEAST_BAR
    if below:
        wide = max(_LEAST_BAR, width - 10)
    drawn, shows = more.past(gpu["uuid"], wide)
    bars: list[tuple[str, Line, str]] = [
        ("history", [(drawn, _COLOURS[1])], " " + shows),
        ("compute", _bar(busy, 100, wide), says[0]),
        ("memory ", _bar(held, gpu["memory_bytes"], wide), says[1]),
    ]
    lines = [head]
    for name, bar, text in bars[0 if drawn else 1 :]:
        lines.append([(f"{name} [", ""), *bar, ("]" if below else "]" + text, "")])
        lines += [[(text, "")]] if below else []
    return lines


def _bar(parts: Sequence[tuple[float, float]], whole: float, width: int) -> Line:
    """A bar of `width` characters for the whole, or for the sum if that is more: each part's use
    and share.
    """
    whole = max(whole, sum(max(part) for part in parts), 1)
    bar: Line = []
    begin, drawn_to = 0.0, 0
    for number, (used, has) in enumerate(parts):
        letter, colour = _LETTERS[number % len(_LETTERS)], _COLOURS[number % len(_COLOURS)]
        for end, text, how in (
            (begin + used, letter, _USED + colour),
            (begin + max(used, has), letter.lower(), colour),
        ):
            to = round(end * width / whole)
            bar.append((text * (to - drawn_to), how))
            drawn_to = to
        begin += max(used, has)
    return [*bar, ("." * (width - drawn_to), _DIM)]


def _table(tenants: Sequence[_Entry], width: int) -> list[Line]:
    if not tenants:
        return []
    headings, *rows = (_HEADINGS, *map(_row, tenants))
    if all(entry["held_percent"] is None for entry in tenants):
        headings, *rows = (row[:_HELD] + row[_HELD + 1 :] for row in (headings, *rows))
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    names = [_seen(entry["name"]) for entry in tenants]
    others = sum(w + 2 for w in (*widths[:-1], min(widths[-1], _LEAST_NOTES)))
    beside = max(_SHORTEST_NAME, width - 2 - sum(w + 2 for w in widths[:2]))
    room = max(min(_LEAST_NAME, beside), width - 4 - others)
    longest = min(room, max(map(len, ("CONTAINER", *names))))
    shown = [table.cut(name, longest).ljust(longest) for name in names]
    # A figure without its last digit would be another one; notes are cut at the edge.
    ends = itertools.accumulate((w + 2 for w in widths[:-1]), initial=2 + longest)
    whole = sum(end <= width for end in ends) - 1
    if whole < len(widths) - 1:
        headings, *rows = (row[: max(1, whole)] for row in (headings, *rows))
    lines: list[Line] = [
        [(f"  {'CONTAINER'.ljust(longest)}  {table.line(headings, widths)}", _DIM)]
    ]
    for number, (name, row) in enumerate(zip(shown, rows)):
        letter, colour = _LETTERS[number % len(_LETTERS)], _COLOURS[number % len(_COLOURS)]
        lines.append([(letter, _USED + colour), (f" {name}  {table.line(row, widths)}", "")])
    return lines


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
        notes.append(_seen(reason))
    if entry["memory_managed"]:
        notes.append("managed memory")
    if entry["refusals"]:
        notes.append(f"{entry['refusals']} refusals")
    return (
        f"{'-' if core is None else f'{core:.0f}'} of {entry['core_percent']} %",
        _of(memory, entry["memory_bytes"]),
        "-" if held is None else f"{held:.0f} %",
        "-" if waited is None else f"{waited:.0f} %",
        "; ".join(notes),
    )


def _of(used: int | None, share: int) -> str:
    """Both in one unit if they have the same: a phone's screen has 40 columns."""
    whole = table.size(share)
    if used is None:
        return f"- of {whole}"
    return f"{table.size(used).removesuffix(whole[whole.index(' ') :])} of {whole}"


def _seen(text: str) -> str:
    """One character for each column: a name must not control the terminal or shift its line."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
