"""The screen of ``vcuda top`` for one sample, as lines of text with colours: pure.

Each tenant has a letter on each GPU: in the bars A is what A uses, a the rest of its share, so that
the picture is readable without colours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..live import views
from ..text import table
from . import top_table
from .choices import COMPUTE, MEMORY, WAITS
from .process_rows import ProcessRow
from .top_table import COLOURS, DIM, LETTERS, USED, Line, seen

_Entry = Mapping[str, Any]

_BOLD, _BAD = "1", "1;31"
_LEAST_BAR = 10


class More(NamedTuple):
    """What is shown of a GPU beside the sample, by functions of its UUID. past: of the UUID and a
    width: a sparkline and its caption, as History.line. events: likewise a line of marks, and the
    events' names. sensors: a line. processes: those of an allocation on the GPU.
    """

    past: Callable[[str, int], tuple[str, str]] = lambda uuid, width: ("", "")
    events: Callable[[str, int], tuple[str, str]] = lambda uuid, width: ("", "")
    sensors: Callable[[str], str] = lambda uuid: ""
    processes: Callable[[str, str], Sequence[ProcessRow]] = lambda id, uuid: ()


_NO_MORE = More()


def screen(view: _Entry, width: int, order: str, more: More = _NO_MORE) -> list[Line]:
    """Each GPU with its bars and tenants, then other messages."""
    lines: list[Line] = []
    gpus = {gpu["uuid"]: gpu for gpu in view["gpus"]}
    for uuid in dict.fromkeys([*gpus, *(entry["gpu_uuid"] for entry in view["tenants"])]):
        tenants = _sorted([e for e in view["tenants"] if e["gpu_uuid"] == uuid], order)
        if uuid in gpus:
            lines += _gpu(gpus[uuid], tenants, width, more)
        else:
            lines += [[(f"{seen(uuid)} is not seen on this host", _BOLD)]]
        lines += [*top_table.lines(tenants, width, more.processes), []]
    unread = {entry["id"] for entry in view["tenants"] if entry["usage"] == views.UNREADABLE}
    if unread:
        of = table.count(len(unread), "container")
        lines += [[(f"The use of {of} is unknown: only root may read a usage page.", _BAD)], []]
    if not gpus:
        lines += [[("No GPU is known: 'vcuda gpus' says why.", "")], []]
    for name in view["broken_records"]:
        lines += [[(f"{seen(name)} is not a whole record: see 'vcuda ps'", _BAD)], []]
    return lines[:-1]


def title(view: _Entry, order: str) -> Line:
    containers = len({entry["id"] for entry in view["tenants"]})
    when = time.strftime("%H:%M:%S", time.localtime(view["time"]))
    counts = f"{table.count(len(view['gpus']), 'GPU')}, {table.count(containers, 'container')}"
    return [("vcuda top", _BOLD), (f" {when}, {counts}, by {order}", "")]


def drawn(line: Line, width: int, with_colour: bool) -> str:
    """The line for a terminal, at most `width` wide."""
    text = ""
    for part, colour in line:
        part = part[: max(0, width)]
        width -= len(part)
        text += f"\x1b[{colour}m{part}\x1b[0m" if with_colour and colour and part else part
    return text if with_colour else text.rstrip()


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
    ("g", "show or hide the history and events"),
    ("t F5", "show or hide the processes of each container"),
    ("what is shown", ""),
    ("AAAaaa...", "what container A uses, the rest of its share, what is free"),
    ("history", "compute, the newest at the right: the agent's last hour"),
    ("COMPUTE MEMORY", "used and share; a container reports its own use"),
    ("events", "^ marks one below the history; the newest is named first"),
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
    return [*lines, [], [("any key returns", DIM)]]


def _gpu(gpu: _Entry, tenants: Sequence[_Entry], width: int, more: More) -> list[Line]:
    head: Line = [(f"GPU {gpu['name']}", _BOLD)]
    head.append((f"  {seen(gpu['model'])}  {table.short(seen(gpu['uuid']))}", ""))
    sensors = more.sensors(gpu["uuid"])
    if sensors:
        head.append((f"  {sensors}", ""))
    if condition := views.condition(gpu):
        word, colon, why = condition.partition(":")
        head.append((f"  {word.upper()}{colon}{seen(why)}", _BAD))
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
        ("history", [(drawn, COLOURS[1])], " " + shows),
        ("compute", _bar(busy, 100, wide), says[0]),
        ("memory ", _bar(held, gpu["memory_bytes"], wide), says[1]),
    ]
    lines = [head]
    for name, bar, text in bars[0 if drawn else 1 :]:
        lines.append([(f"{name} [", ""), *bar, ("]" if below else "]" + text, "")])
        lines += [[(text, "")]] if below else []
        if name == "history":
            marks, names = more.events(gpu["uuid"], wide)
            lines += [[(f"events  [{marks}]", "")], [(f"  {seen(names)}", DIM)]] if marks else []
    return lines


def _bar(parts: Sequence[tuple[float, float]], whole: float, width: int) -> Line:
    """A bar of `width` characters for the whole, or for the sum if that is more: each part's use
    and share.
    """
    whole = max(whole, sum(max(part) for part in parts), 1)
    bar: Line = []
    begin, drawn_to = 0.0, 0
    for number, (used, has) in enumerate(parts):
        letter, colour = LETTERS[number % len(LETTERS)], COLOURS[number % len(COLOURS)]
        for end, text, how in (
            (begin + used, letter, USED + colour),
            (begin + max(used, has), letter.lower(), colour),
        ):
            to = round(end * width / whole)
            bar.append((text * (to - drawn_to), how))
            drawn_to = to
        begin += max(used, has)
    return [*bar, ("." * (width - drawn_to), DIM)]
