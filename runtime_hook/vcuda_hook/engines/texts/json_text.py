"""Set and remove members in a JSON text; every other byte stays."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from .toml_document import Path

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass
class _Member:
    """Offsets of one `"key": value`; key: with its quotes."""

    name: str
    start: int
    value: int
    end: int


def parse(text: str) -> Any:
    """Parse the text. Raises json.JSONDecodeError."""
    return json.loads(text)


def raw(text: str, path: Path) -> str | None:
    """The source text of the value at `path`; None: no such value."""
    member = _find(text, path)
    return text[member.value : member.end] if member else None


def put(text: str, path: Path, value: Any, raw_value: str | None = None) -> str:
    """The text with `value` at `path`, written as `raw_value` if given."""
    member = _find(text, path)
    if member:
        new = json.dumps(value) if raw_value is None else raw_value
        return text[: member.value] + new + text[member.end :]
    start = _space(text, 0)
    depth = 0
    while depth < len(path) - 1:
        above = _find(text, path[: depth + 1])
        if above is None:
            break
        start, depth = above.value, depth + 1
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    return _insert(text, start, path[depth], value)


def take(text: str, path: Path) -> str:
    """The text without the member at `path`."""
    start = _object_at(text, path[:-1])
    members = _members(text, start)
    at = next(index for index, member in enumerate(members) if member.name == path[-1])
    if len(members) == 1:
        return text[: start + 1] + text[text.index("}", members[0].end) :]
    if at + 1 < len(members):
        return text[: members[at].start] + text[members[at + 1].start :]
    return text[: members[at - 1].end] + text[members[at].end :]


def _insert(text: str, start: int, name: str, value: Any) -> str:
    """Insert a member at the end of the object at `start`, in the style of its other members."""
    members = _members(text, start)
    if members:
        lead = text[start + 1 : members[0].start]
        at = members[-1].end
        comma = "," if "\n" in lead else ", "
        lead = lead if "\n" in lead else ""
    else:
        at, comma = start + 1, ""
        line = text[text.rfind("\n", 0, start) + 1 : start]
        lead = "\n" + line[: len(line) - len(line.lstrip(" \t"))] + _unit(text)
    if "\n" in lead:
        newline = "\r\n" if "\r\n" in lead else "\n"
        indent = lead[lead.rindex("\n") + 1 :]
        body = json.dumps(value, indent=_unit(text)).replace("\n", newline + indent)
    else:
        body = json.dumps(value)
    rest = text[at:]
    if not members:
        rest = lead[: len(lead) - len(_unit(text))] + rest[_space(text, at) - at :]
    return f"{text[:at]}{comma}{lead}{json.dumps(name)}: {body}{rest}"


def _unit(text: str) -> str:
    """One step of indentation, as the first member has it."""
    found = re.match(r"[ \t\r\n]*\{[ \t\r]*\n[\r\n]*([ \t]+)\"", text)
    return found.group(1) if found else "  "


def _find(text: str, path: Path) -> _Member | None:
    start, found = _space(text, 0), None
    for name in path:
        if text[start : start + 1] != "{":
            return None
        found = next((member for member in _members(text, start) if member.name == name), None)
        if found is None:
            return None
        start = found.value
    return found


def _object_at(text: str, path: Path) -> int:
    member = _find(text, path)
    return member.value if member else _space(text, 0)


def _members(text: str, start: int) -> list[_Member]:
    """The members of the object that begins at `start` in a valid text."""
    members = []
    at = _space(text, start + 1)
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        value = _space(text, _space(text, end) + 1)
        _, after = _DECODER.raw_decode(text, value)
        members.append(_Member(name, at, value, after))
        at = _space(text, after)
        if text[at] == ",":
            at = _space(text, at + 1)
    return members


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
