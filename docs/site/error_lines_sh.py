"""The same of a package's scripts: what they say on standard error."""

from __future__ import annotations

import re

from error_line import REPOSITORY, Line, Unreadable, split

_STRINGS = r"((?:\"(?:\\.|[^\"\\])*\"\s*)+)"
_SAID = re.compile(rf"\b(?:say|echo) {_STRINGS}(>&2)?")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?|@(\w+)@")
_SAY = re.compile(r"(?m)^say\(\) .* >&2; }$")


def of(path: str) -> list[Line]:
    """A script's lines, in its order. Raises Unreadable: it writes another way."""
    with open(f"{REPOSITORY}/{path}") as file:
        text = _SAY.sub("", file.read().replace("\\\n", ""))
    if left := re.search(r".*>&2.*", _SAID.sub("", text)):
        raise Unreadable(f"{path}: {left[0].strip()}")
    return [split(_plain(found[1], found[0])) for found in _SAID.finditer(text)]


def _plain(strings: str, call: str) -> str:
    text = " ".join(re.findall(r"\"((?:\\.|[^\"\\])*)\"", strings))
    text = _VARIABLE.sub(lambda name: f"<{(name[1] or name[2]).lower()}>", text)
    return text if call.startswith("echo") else f"<package>: {text}"
