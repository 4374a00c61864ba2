"""Figures as text: aligned columns, sizes, ages, sensors, a terminal's colours."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence

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
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in (headings, *cells)) for i in range(len(headings))]
    if shrinks is not None and width:
        over = sum(widths) + 2 * (len(widths) - 1) - width
        widths[shrinks] = max(len(headings[shrinks]), widths[shrinks] - max(0, over))
        for row in cells:
            row[shrinks] = cut(row[shrinks], widths[shrinks])
    return [line(row, widths) for row in (headings, *cells)]


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


def percent(figure: float | None) -> str:
    """Such as "30 %"; "-": unknown."""
    return "-" if figure is None else f"{figure:.0f} %"


def size(count: int | None) -> str:
    """Bytes in the largest unit with a digit before the point: "4 GiB", "1.5 MiB"; "-": unknown."""
    if count is None:
        return "-"
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


def sensors(figures: Mapping[str, float | None]) -> str:
    """A GPU's sensors, such as "41 °C, 120 of 350 W, 1,980 MHz, PCIe out 1.2 GiB/s in 3 MiB/s".

    "": none is known. figures: by key, as the agent's /usage has them; null where NVML has none.
    """
    heat, power, most = (
        figures.get(key) for key in ("temperature_celsius", "power_watts", "power_limit_watts")
    )
    clock = figures.get("sm_clock_hertz")
    sent, received = (figures.get(f"pcie_{way}_bytes_per_second") for way in ("sent", "received"))
    parts = [] if heat is None else [f"{heat:.0f} °C"]
    if power is not None:
        parts.append(f"{power:.0f} W" if most is None else f"{power:.0f} of {most:.0f} W")
    if clock is not None:
        parts.append(f"{clock / 1e6:,.0f} MHz")
    if sent is not None and received is not None:
        parts.append(f"PCIe out {size(int(sent))}/s in {size(int(received))}/s")
    return ", ".join(parts)
