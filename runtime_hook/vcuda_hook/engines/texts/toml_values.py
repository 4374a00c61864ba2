"""TOML's values: strings, numbers, dates, arrays and inline tables. Source: toml.io, version 1.0.

`tomllib` came with Python 3.11 and returns no positions; an edit that leaves the rest of a file
unchanged needs the position of each value.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

SPACE = re.compile(r"[ \t]*(?:\r(?=\n))?")  # a newline may be \r\n
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # all control characters but the tab
_CONTROL_BUT_NEWLINE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NOT_PLAIN = {'"': re.compile(r'["\\\x00-\x08\x0a-\x1f\x7f]'), "'": re.compile(r"['\n]")}
_ESCAPES = {'"': '"', "\\": "\\", "b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_UNICODE = re.compile(r"u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")
_LINE_END = re.compile(r"[ \t]*\r?\n(?:[ \t\n]|\r\n)*")
_DATE = r"(\d{4})-(\d{2})-(\d{2})"
_TIME = r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d+))?"
_MOMENT = re.compile(
    rf"{_DATE}(?:[Tt ]{_TIME}(?:([Zz])|([+-])([01]\d|2[0-3]):([0-5]\d))?)?", re.ASCII
)
_CLOCK = re.compile(_TIME, re.ASCII)
_BASED = re.compile(r"0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*")
_NUMBER = re.compile(
    r"[+-]?(?:0|[1-9](?:_?\d)*)((?:\.\d(?:_?\d)*)?(?:[eE][+-]?\d(?:_?\d)*)?)|[+-]?(?:inf|nan)",
    re.ASCII,
)
_WORDS = {"true": True, "false": False}


class TomlError(ValueError):
    """Invalid TOML, and its offset."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what, self.at = what, at


def key(text: str, at: int) -> tuple[str, int]:
    """Parse a bare or quoted key at `at`; return it and the offset after it."""
    if text[at : at + 1] in ("'", '"'):
        if text.startswith(('"""', "'''"), at):
            raise TomlError("a key cannot have several lines", at)
        return string(text, at)
    found = BARE_KEY.match(text, at)
    if not found:
        raise TomlError("a key is missing", at)
    return found.group(), found.end()


def string(text: str, at: int) -> tuple[str, int]:
    """Parse the string that begins with the quote at `at`; return it and the offset after it."""
    quote = text[at]
    if text.startswith(quote * 3, at):
        return _long_string(text, at, quote * 3)
    start, at, parts = at, at + 1, []
    while True:
        end = _NOT_PLAIN[quote].search(text, at)
        plain_end = end.start() if end else len(text)
        parts.append(text[at:plain_end])
        at = plain_end
        if text[at : at + 1] == quote:
            break
        if quote == "'" or text[at : at + 1] != "\\":
            raise TomlError("string not closed on its line", start)
        character, at = _escape(text, at)
        parts.append(character)
    value = "".join(parts)
    if CONTROL.search(value) and quote == "'":
        raise TomlError("a control character in a string", start)
    return value, at + 1


def _long_string(text: str, at: int, quotes: str) -> tuple[str, int]:
    start, at, parts = at, at + 3, []
    at += text.startswith("\n", at) + 2 * text.startswith("\r\n", at)
    while True:
        if text.startswith(quotes, at):
            # Up to two more quotes belong to the string.
            extra = 0
            while extra < 2 and text.startswith(quotes[0], at + 3):
                parts.append(quotes[0])
                at, extra = at + 1, extra + 1
            return "".join(parts), at + 3
        if at >= len(text):
            raise TomlError("unclosed string", start)
        if text[at] == "\\" and quotes[0] == '"':
            folded = _LINE_END.match(text, at + 1)
            if folded:
                at = folded.end()
                continue
            character, at = _escape(text, at)
        else:
            at += text.startswith("\r\n", at)
            character, at = text[at], at + 1
            if _CONTROL_BUT_NEWLINE.match(character):
                raise TomlError("a control character in a string", at - 1)
        parts.append(character)


def _escape(text: str, at: int) -> tuple[str, int]:
    plain = _ESCAPES.get(text[at + 1 : at + 2])
    if plain is not None:
        return plain, at + 2
    found = _UNICODE.match(text, at + 1)
    number = int(found.group(1) or found.group(2), 16) if found else -1
    if not found or number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise TomlError("unknown escape", at)
    return chr(number), found.end()


def scalar(text: str, at: int) -> tuple[Any, int]:
    """Parse a string, boolean, date or number at `at`; return it and the offset after it."""
    if text[at : at + 1] in ("'", '"'):
        return string(text, at)
    for word, value in _WORDS.items():
        if text.startswith(word, at):
            return value, at + len(word)
    try:
        found = _MOMENT.match(text, at)
        if found:
            return _moment(found), found.end()
        found = _CLOCK.match(text, at)
        if found:
            return _clock(*found.groups()), found.end()
    except ValueError as error:
        raise TomlError(f"not a date: {error}", at) from None
    found = _BASED.match(text, at)
    if found:
        return int(found.group(), 0), found.end()
    found = _NUMBER.match(text, at)
    if not found:
        raise TomlError("a value is missing", at)
    word = found.group()
    is_float = bool(found.group(1)) or word[-3:] in ("inf", "nan")
    try:
        return (float if is_float else int)(word.replace("_", "")), found.end()
    except ValueError as error:  # more digits than Python converts to a number
        raise TomlError(str(error), at) from None


def _moment(found: re.Match[str]) -> datetime.date:
    year, month, day, hour, minute, second, part, zulu, sign, hours, minutes = found.groups()
    date = datetime.date(int(year), int(month), int(day))
    if hour is None:
        return date
    zone = datetime.timezone.utc if zulu else None
    if sign:
        offset = datetime.timedelta(hours=int(hours), minutes=int(minutes))
        zone = datetime.timezone(offset if sign == "+" else -offset)
    return datetime.datetime.combine(date, _clock(hour, minute, second, part), zone)


def _clock(hour: str, minute: str, second: str, part: str | None) -> datetime.time:
    return datetime.time(int(hour), int(minute), int(second), int((part or "0")[:6].ljust(6, "0")))


def written(value: Any) -> str:
    """Format a string, boolean, integer or list of them as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in value) + "]"
    return quoted(str(value))


def quoted(text: str) -> str:
    short = {value: "\\" + name for name, value in _ESCAPES.items()}
    parts = (short.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in text)
    return '"' + "".join(parts) + '"'


def written_key(path: tuple[str, ...]) -> str:
    """Format a dotted key, each part bare if possible."""
    return ".".join(part if BARE_KEY.fullmatch(part) else quoted(part) for part in path)
