"""``vcuda top``: the GPUs and their tenants, live."""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system.settings_file import Config

from ..live import in_time, views
from ..text import table
from . import agent_client, choices, history, top_screen
from .history import History
from .live_view import LiveView
from .process_rows import ProcessRows
from .terminal import Ended, Terminal, end_by, is_usable
from .top_table import Line

_WIDTH = 100  # if the terminal does not report its size
_KEYS = {
    **{order[0]: order for order in choices.TOP_ORDERS},
    # As in htop.
    **{"N": choices.NAME, "P": choices.COMPUTE, "M": choices.MEMORY},
}
_HELP = "q quit   ? help   t processes   sort: n name, c compute, m memory, w waits"
_HISTORY_SECONDS = 1.0
_MOST_NAMED = 5  # more do not fit a wide terminal
_NO_GRAPH = top_screen.More().past


def top(arguments: argparse.Namespace, settings: Config) -> int:
    """Run until q or a signal; with --once print one sample. Raises VcudaError: no terminal.

    Returns 1 after --once if a record is broken.
    """
    live = LiveView(settings)
    if arguments.json or arguments.once:
        return _print(live, arguments)
    if not is_usable():
        raise VcudaError("shows nothing without a terminal", "vcuda top", "use --once or --json")
    past = History(_agents(settings.listen))
    agent = agent_client.Followed(settings.listen)
    try:
        with Terminal() as terminal:
            _live(live, terminal, arguments, past, agent, ProcessRows(settings.state_dir))
    except Ended as end:
        end_by(end.number)
    return 0


def _print(live: LiveView, arguments: argparse.Namespace) -> int:
    """Print samples; the use of GPU time is that of the interval before each."""
    live.sample()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while True:
        time.sleep(arguments.interval)
        view = live.sample()
        if arguments.json and not arguments.once:
            print(json.dumps(view), flush=True)
            continue
        if arguments.json:
            table.print_json(view)
        else:
            width = shutil.get_terminal_size((_WIDTH, 0)).columns
            body = top_screen.screen(view, width, arguments.sort)
            for line in (top_screen.title(view, arguments.sort), [], *body):
                print(top_screen.drawn(line, width, table.has_colour()))
        unread = any(entry["usage"] == views.UNREADABLE for entry in view["tenants"])
        return 1 if view["broken_records"] or (unread and os.geteuid() != 0) else 0


def _live(
    live: LiveView,
    terminal: Terminal,
    arguments: argparse.Namespace,
    past: History,
    agent: agent_client.Followed,
    processes: ProcessRows,
) -> None:
    """Raises Ended."""
    order, above, helps, graphs, tree = arguments.sort, 0, False, True, False
    view = live.sample()
    past.add(view)
    # The first sample has no use of GPU time: take the second soon.
    due = time.monotonic() + min(0.2, arguments.interval)
    while True:
        width, height = terminal.size()
        graph = functools.partial(past.line, plain=_is_plain()) if graphs else _NO_GRAPH
        more = top_screen.More(
            graph,
            functools.partial(_events, past, agent),
            lambda uuid: _sensors(agent, uuid),
            processes.of,
        )
        body = top_screen.help() if helps else top_screen.screen(view, width, order, more)
        room = max(1, height - 3)
        above = max(0, min(above, len(body) - room))
        terminal.show(_page(view, body[above : above + room], order, width, height))
        key = terminal.key(due)
        if key is None:
            view, due = live.sample(), time.monotonic() + arguments.interval
            past.add(view)
        elif key in ("q", "Q", "f10"):
            return
        elif key:
            helped, helps = helps, not helps and key in ("?", "h", "f1")
            above = above if helps == helped else 0
            graphs ^= key == "g"
            tree ^= key in ("t", "f5")
            processes.show(tree)
            order = _KEYS.get(key, _next(order) if key in (">", "f6") else order)
            far = len(body)
            steps = {"up": -1, "down": 1, "page up": -room, "page down": room}
            above += {**steps, "home": -far, "end": far}.get(key, 0)


def _next(order: str) -> str:
    orders = choices.TOP_ORDERS
    return orders[(orders.index(order) + 1) % len(orders)]


def _agents(listen: str) -> dict[str, list[float | None]]:
    """The agent's history, asked in a process of its own: the address may be another program's."""
    (answer,) = in_time.ask([lambda: history.of_agent(listen)], _HISTORY_SECONDS)
    return {} if isinstance(answer, in_time.Unanswered) else answer


def _events(past: History, agent: agent_client.Followed, uuid: str, width: int) -> tuple[str, str]:
    """Marks below the history, and the names of the last events, the newest first."""
    now, events = time.time(), agent.events(uuid)
    named = [
        f"{' '.join(filter(None, (each.kind, each.name)))} {table.age(now - each.time)} ago"
        for each in reversed(events[-_MOST_NAMED:])
    ]
    return past.marks(uuid, width, [now - each.time for each in events]), ", ".join(named)


def _sensors(agent: agent_client.Followed, uuid: str) -> str:
    text = table.sensors(agent.sensors(uuid))
    return text.replace("°C", "C") if _is_plain() else text


def _is_plain() -> bool:
    return "utf" not in (sys.stdout.encoding or "").lower()


def _page(
    view: dict[str, Any], body: Sequence[Line], order: str, width: int, height: int
) -> list[str]:
    """As many lines as the terminal has."""
    lines = [top_screen.title(view, order), [], *body]
    lines += [[] for _ in range(height - 1 - len(lines))]
    lines = [*lines[: height - 1], [(_HELP, "2")]]
    return [top_screen.drawn(line, width, table.has_colour()) for line in lines]
