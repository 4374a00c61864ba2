"""The diagrams of flows: docs/flows/NAME.yaml becomes docs/flow-NAME.svg, by `make pages`.

A source has a title, a description for screen readers, and parts below each other:

- lanes and steps: "a -> b: text" is an arrow, "a: text" something that a does, "== text" a heading;
- rows on a time axis: "kind from-to", separated by commas; marks: [moment, text].

Names of programs and files stand between backticks. A picture is 400 units wide with text of 14, so
that a phone's 330 pixels for it leave 11 a line. Colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field
from html import escape
from typing import Any

import yaml

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH, EDGE, LINE = 400, 8, 18
# How wide a character is on average in DejaVu, a wide font, of size 14 and, for names, 13.5.
CHARACTER, BOLD, NAME_CHARACTER = 7.8, 9.2, 8.15
ROW, LABELS = 30, 88  # height of a time row; width of its name

STYLE = """\
  <style>
    svg { --paper: #ffffff; --ink: #14181d; --line: #6b7480; --box: #e4eefa; --edge: #1f6fb2;
      --works: #8dbdec; --waits: #f3c18e; --copies: #cdb4ec; --holds: #dfe3e8 }
    @media (prefers-color-scheme: dark) {
      svg { --paper: #14181d; --ink: #edf1f5; --line: #97a1ad; --box: #1c3550; --edge: #63a8e6;
        --works: #24619b; --waits: #87531b; --copies: #5f4391; --holds: #39424d }
    }
    .paper { fill: var(--paper) } .line { stroke: var(--line); fill: none }
    .lane { stroke: var(--line); stroke-dasharray: 2 4 } .head { fill: var(--line) }
    .box { fill: var(--box); stroke: var(--edge) } .works { fill: var(--works) }
    .waits { fill: var(--waits) } .copies { fill: var(--copies) } .holds { fill: var(--holds) }
    text { font: 14px sans-serif; fill: var(--ink); text-anchor: middle }
    .over { stroke: var(--paper); stroke-width: 5px; paint-order: stroke; stroke-linejoin: round }
    .bold { font-weight: bold } .left { text-anchor: start }
    .name { font-family: monospace; font-size: 13.5px }
  </style>"""


@dataclass
class Drawing:
    """Elements so far, and y, the height that they take."""

    y: float = EDGE
    elements: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        spans = re.sub(r"`(.+?)`", r'<tspan class="name">\1</tspan>', escape(words, quote=False))
        self.elements.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{spans}</text>')

    def rectangle(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        where = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.elements.append(f'<rect {where} rx="3" class="{kind}"/>')

    def path(self, data: str, kind: str) -> None:
        self.elements.append(f'<path d="{data}" class="{kind}"/>')


def width_of(words: str, character: float = CHARACTER) -> float:
    """About this wide, in units."""
    names = re.findall(r"`(.+?)`", words)
    rest = re.sub(r"`.+?`", "", words)
    return len(rest) * character + sum(map(len, names)) * NAME_CHARACTER


def wrapped(words: str, room: float, character: float = CHARACTER) -> list[str]:
    """Lines of about this width; one word may be wider."""
    lines: list[str] = []
    for word in re.findall(r"[^\s`]*`[^`]+`\S*|\S+", words):
        if lines and width_of(f"{lines[-1]} {word}", character) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def vertical(x: float, since: float, until: float, kind: str) -> str:
    return f'<path d="M{x:g} {since:g} V{until:g}" class="{kind}"/>'


def beside(x: float, width: float) -> float:
    """The middle, as near x as the picture's edges allow."""
    return min(max(x, EDGE + width / 2), WIDTH - EDGE - width / 2)


def draw_lanes(drawing: Drawing, lanes: list[str], steps: list[str]) -> None:
    column = (WIDTH - 2 * EDGE) / len(lanes)
    at = {name: EDGE + column * (index + 0.5) for index, name in enumerate(lanes)}
    heads = {name: wrapped(name, column - 6) for name in lanes}
    top = drawing.y
    height = LINE * max(map(len, heads.values())) + 8
    behind = len(drawing.elements)
    for name, lines in heads.items():
        drawing.rectangle(at[name] - column / 2 + 1, top, column - 2, height, "box")
        for index, line in enumerate(lines):
            first = top + (height - LINE * len(lines)) / 2 + 14
            drawing.text(at[name], first + LINE * index, line)
    drawing.y = top + height + 8
    for step in steps:
        draw_step(drawing, at, step)
    drawing.elements[behind:behind] = [
        vertical(x, top + height, drawing.y, "lane") for x in at.values()
    ]
    drawing.y += EDGE


def draw_step(drawing: Drawing, at: dict[str, float], step: str) -> None:
    if step.startswith("== "):
        drawing.y += 6
        drawing.text(WIDTH / 2, drawing.y + 14, step[3:], "bold over")
        drawing.y += LINE + 8
        return
    where, words = step.split(": ", 1)
    first, _, second = where.partition(" -> ")
    lines = wrapped(words, WIDTH - 2 * EDGE - 12)
    wide = max(map(width_of, lines))
    if second:
        x = beside((at[first] + at[second]) / 2, wide)
        for line in lines:
            drawing.text(x, drawing.y + 14, line, "over")
            drawing.y += LINE
        y = drawing.y + 5
        way = 1 if at[second] > at[first] else -1
        drawing.path(f"M{at[first]:g} {y:g} H{at[second] - 7 * way:g}", "line")
        drawing.path(f"M{at[second]:g} {y:g} l{-9 * way} -5 v10 z", "head")
        drawing.y += 16
    else:
        x = beside(at[first], wide + 12)
        drawing.rectangle(x - wide / 2 - 6, drawing.y, wide + 12, LINE * len(lines) + 4, "box")
        for line in lines:
            drawing.text(x, drawing.y + 15, line)
            drawing.y += LINE
        drawing.y += 12


def draw_times(drawing: Drawing, part: dict[str, Any]) -> None:
    begin, end = LABELS, WIDTH - EDGE - 4
    scale = (end - begin) / part["to"]
    top, behind = drawing.y, len(drawing.elements)
    for moment, words in part.get("marks", []):
        x = begin + moment * scale
        drawing.text(beside(x, width_of(words)), drawing.y + 14, words, "over")
        drawing.y += LINE
    drawing.y += 4
    for name, spans in part["rows"].items():
        drawing.text(EDGE, drawing.y + 18, name, "left")
        for span in spans.split(","):
            kind, times = span.split()
            since, until = (float(time) * scale + begin for time in times.split("-"))
            drawing.rectangle(since, drawing.y, until - since - 1, ROW - 6, kind)
        drawing.y += ROW
    drawing.elements[behind:behind] = [
        vertical(begin + moment * scale, top + LINE * row + 16, drawing.y, "line")
        for row, (moment, _) in enumerate(part.get("marks", []))
    ]
    for moment in part.get("ticks", []):
        words = f"{moment}{part['unit'] if moment == part['to'] else ''}"
        x = beside(begin + moment * scale, width_of(words))
        drawing.text(x, drawing.y + 12, words)
    drawing.y += LINE if part.get("ticks") else 0
    draw_key(drawing, part["key"])


def draw_key(drawing: Drawing, key: dict[str, str]) -> None:
    x = float(EDGE)
    drawing.y += 6
    for kind, words in key.items():
        if x > EDGE and x + 22 + width_of(words) > WIDTH - EDGE:
            x, drawing.y = EDGE, drawing.y + LINE + 4
        drawing.rectangle(x, drawing.y, 16, 16, kind)
        drawing.text(x + 22, drawing.y + 13, words, "left")
        x += 22 + width_of(words) + 10
    drawing.y += LINE + EDGE


def picture(source: dict[str, Any]) -> str:
    """The SVG of a source as YAML reads it."""
    drawing = Drawing()
    for part in source["parts"]:
        for line in wrapped(part.get("title", ""), WIDTH - 2 * EDGE, BOLD):
            drawing.text(EDGE, drawing.y + 15, line, "bold left")
            drawing.y += LINE + 4
        if "lanes" in part:
            draw_lanes(drawing, part["lanes"], part["steps"])
        else:
            draw_times(drawing, part)
        drawing.y += EDGE
    size = f'width="{WIDTH}" height="{drawing.y:g}" viewBox="0 0 {WIDTH} {drawing.y:g}"'
    named = f'role="img" aria-label="{escape(source["title"])}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {named}>'
    about = [f"  <title>{escape(source['title'])}</title>"]
    about += [f"  <desc>{escape(source['description'])}</desc>", STYLE]
    paper = f'  <rect width="{WIDTH}" height="{drawing.y:g}" class="paper"/>'
    return "\n".join([head, *about, paper, *("  " + e for e in drawing.elements), "</svg>\n"])


def sources() -> dict[str, dict[str, Any]]:
    """Each source by its name."""
    found = {}
    for path in sorted(glob.glob(FOLDER + "/flows/*.yaml")):
        with open(path) as file:
            found[os.path.basename(path).removesuffix(".yaml")] = yaml.safe_load(file)
    return found


def main() -> None:
    for name, source in sources().items():
        with open(f"{FOLDER}/flow-{name}.svg", "w") as file:
            file.write(picture(source))


if __name__ == "__main__":
    main()
