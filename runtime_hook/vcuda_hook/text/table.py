"""Text for terminals: aligned columns, sizes, ages, colours."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence

_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], shrinks: int | None = None
) -> None:
    """Print what `lines` returns, not wider than the terminal."""
    for number, text in enumerate(lines(headings, rows, shrinks, terminal_width())):
        print(text if number else coloured(text, "bold"))


def terminal_width() -> int:
    """The width of standard output's terminal; 0: it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def lines(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    shrinks: int | None = None,
    width: int = 0,
) -> list[str]:
    """Columns as wide as their widest cell, two spaces apart; the headings first.

    shrinks: index of the column that is shortened if the lines are wider than `width`; 0: any.
    Characters that are not printable are replaced.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    if shrinks is not None and width:
        over = sum(widths) + 2 * (len(widths) - 1) - width
        widths[shrinks] = max(len(headings[shrinks]), widths[shrinks] - max(0, over))
        rows = [
            [cut(cell, widths[i]) if i == shrinks else cell for i, cell in enumerate(row)]
            for row in rows
        ]
    return [line(row, widths) for row in (headings, *rows)]


def printable(text: str) -> str:
    """`text` without control characters: pods' and containers' names must not move a terminal's
    cursor or begin a new line.
    """
    return "".join(character if character.isprintable() else "?" for character in text)


def line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()


def cut(text: str, most: int) -> str:
    """Shorten in the middle: names differ at their ends."""
    return text if len(text) <= most else f"{text[: most // 2]}~{text[most // 2 - most + 1 :]}"


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def has_colour() -> bool:
    """Whether standard output is a terminal that may show colours. Source: no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def coloured(text: str, colour: str) -> str:
    return f"\x1b[{_SGR[colour]}m{text}\x1b[0m" if has_colour() else text


def count(number: int, what: str, many: str = "s") -> str:
    """Such as "1 container", "2 containers"."""
    return f"{number} {what}{'' if number == 1 else many}"


def size(count: int) -> str:
    """Bytes in the largest unit with a digit before the point: "4 GiB", "1.5 MiB"."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = 0
    while power < len(units) - 1 and count >= 1024 ** (power + 1):
        power += 1
    return f"{count / 1024**power:.1f}".removesuffix(".0") + f" {units[power]}"


def age(seconds: float) -> str:
    """An age as "8s", "5m", "3h" or "2d"."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"


def short(uuid: str) -> str:
    """A GPU's UUID up to its first group, which distinguishes the GPUs of a node."""
    return "-".join(uuid.split("-")[:2])
