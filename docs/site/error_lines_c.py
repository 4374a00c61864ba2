"""The same of C: calls of `die`, `fail`, `refuse`, and what is printed to stderr with its mend."""

from __future__ import annotations

import re
from collections.abc import Iterator

from error_lines import REPOSITORY, UNKNOWN, Line

# What is in parentheses: text, strings, and one pair of parentheses more.
_INSIDE = r"(?:[^()\"]|\"(?:\\.|[^\"\\])*\"|\([^()]*\))*"
_CALL = re.compile(rf"\b(die|fail|refuse) \(({_INSIDE})\);")
_PRINT = re.compile(r"fprintf \(stderr,\s*((?:\"(?:\\.|[^\"\\])*\"|symbol|\s)+)")
_PART = re.compile(r"(?:[^,()\"]|\"(?:\\.|[^\"\\])*\"|\([^()]*\))+")
_STRING = re.compile(r"\"((?:\\.|[^\"\\])*)\"|([a-zA-Z_]\w*)")
# Before a print that only joins what a call above is given.
_IN_A_CALL = re.compile(r"(?m)^(die|fail|refuse) \([^)]*\)\s*\{\s*\Z")
_DEFINED = re.compile(r"(?m)^#define (\w+) (\".*\")$")


def of(path: str) -> list[Line]:
    """A file's lines, each once, in its order."""
    with open(f"{REPOSITORY}/{path}") as file:
        text = file.read().replace("\\\n", "\n")
    known = {name: _plain(value) for name, value in _DEFINED.findall(text)}
    found = [_said(call[1], _PART.findall(call[2]), known) for call in _CALL.finditer(text)]
    return list(dict.fromkeys([line for line in found if line] + list(_printed(text, known))))


def _said(function: str, parts: list[str], known: dict[str, str]) -> Line | None:
    texts = [_text(part.strip(), known) for part in parts]
    if function == "fail":
        del texts[0]  # the exit code
    if function == "refuse":
        texts[1] += " makes no sense"
    if len(texts) == 2:
        texts.append("start the container again, and report it if it stays")
    where, what, mend = texts
    # How the function itself is declared.
    return None if " *" in parts[0] else Line(where, what, mend)


def _printed(text: str, known: dict[str, str]) -> Iterator[Line]:
    for found in _PRINT.finditer(text):
        said = re.sub(r"%\w+", UNKNOWN, _text(found[1], known)).removesuffix("\\n")
        front, semicolon, mend = said.rpartition("; ")
        program, _, rest = front.partition(": ")
        where, _, what = rest.rpartition(": ")
        if semicolon and not _IN_A_CALL.search(text[: found.start()]):
            yield Line(where or program, what, mend)


def _text(part: str, known: dict[str, str]) -> str:
    if "?" in part and ":" in part.partition("?")[2]:
        forms = part.partition("?")[2]
        return " / ".join(_plain(form) for form in re.findall(r"\"(?:\\.|[^\"\\])*\"", forms))
    if part.startswith("strerror"):
        return "<error>"
    if "(" in part.replace("\\(", "") and not part.startswith('"'):
        return UNKNOWN
    return "".join(
        _plain(string) if string or not name else known.get(name, f"<{name.lower()}>")
        for string, name in _STRING.findall(part)
    )


def _plain(string: str) -> str:
    return string.strip('"').replace('\\"', '"')
