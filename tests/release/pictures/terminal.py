"""A terminal's screen as a web page: text with SGR sequences in a light or dark scheme."""

from __future__ import annotations

import contextlib
import html
import re
import tempfile
from collections.abc import Iterator

# Columns and lines, so that the picture's width is that of the screens.
SIZES = {"desktop": (118, 28), "phone": (40, 42)}
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")
_PAPER = {"light": ("#ffffff", "#1b1f24"), "dark": ("#14181d", "#e6eaee")}
# xterm's first eight colours, as light and dark themes have them.
_BASIC = {
    "light": (
        "#1b1f24",
        "#b3261e",
        "#1a7f37",
        "#8a6100",
        "#0b57d0",
        "#8250df",
        "#087990",
        "#57606a",
    ),
    "dark": (
        "#0d1117",
        "#ff7b72",
        "#57d364",
        "#e3b341",
        "#79c0ff",
        "#d2a8ff",
        "#56d4dd",
        "#b1bac4",
    ),
}
_STEPS = (0, 95, 135, 175, 215, 255)


@contextlib.contextmanager
def shown(screen: str, scheme: str) -> Iterator[str]:
    """The address of a page that shows the screen."""
    paper, ink = _PAPER[scheme]
    style = (
        f"body{{margin:0;padding:12px;background:{paper};color:{ink}}}"
        "pre{margin:0;font:15px/1.25 'DejaVu Sans Mono',monospace;width:max-content}"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".html") as file:
        meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        file.write(f"<!doctype html>{meta}<style>{style}</style><pre>{spans(screen, scheme)}</pre>")
        file.flush()
        yield f"file://{file.name}"


def spans(screen: str, scheme: str) -> str:
    """HTML of the text, with a span for each run of one style."""
    made, style = [], ""
    text = _OTHER.sub("", screen.replace("\r\n", "\n"))
    for at, part in enumerate(_SGR.split(text)):
        if at % 2:
            style = _styled(style, part, scheme)
        elif part:
            made.append(
                f'<span style="{style}">{html.escape(part)}</span>' if style else html.escape(part)
            )
    return "".join(made)


def _styled(style: str, words: str, scheme: str) -> str:
    codes = [int(word or 0) for word in words.split(";")]
    if codes[0] == 7:  # the colour that follows is the background, as vcuda top writes it
        codes[1] += 10
        del codes[0]
        style += f"color:{_PAPER[scheme][0]};"
    while codes:
        code = codes.pop(0)
        if code == 0:
            style = ""
        elif code == 1:
            style += "font-weight:bold;"
        elif code == 2:
            style += "opacity:.65;"
        elif 30 <= code <= 37:
            style += f"color:{_BASIC[scheme][code - 30]};"
        elif 40 <= code <= 47:
            style += f"background:{_BASIC[scheme][code - 40]};"
        elif code in (38, 48) and codes[:1] == [5]:
            kind = "color" if code == 38 else "background"
            style += f"{kind}:{_of_256(codes[1])};"
            del codes[:2]
    return style


def _of_256(number: int) -> str:
    """xterm's colours 16 to 231, a cube, and 232 to 255, greys."""
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return f"rgb({grey},{grey},{grey})"
    red, rest = divmod(number - 16, 36)
    green, blue = divmod(rest, 6)
    return f"rgb({_STEPS[red]},{_STEPS[green]},{_STEPS[blue]})"
