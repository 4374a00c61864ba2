"""The same of C: calls of `die`, `fail`, `refuse`, a line of the shim's, and what is printed to
stderr with its mend."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from error_line import REPOSITORY, UNKNOWN, Line, Unreadable, is_passed_on, split

# What is in parentheses: text, strings, and one pair of parentheses more.
_INSIDE = r"(?:[^()\"]|\"(?:\\.|[^\"\\])*\"|\([^()]*\))*"
_CALL = re.compile(rf"\b(die|fail|refuse|VCUDA_LINE) \(({_INSIDE})\)")
_PRINT = re.compile(rf"fprintf \(\s*stderr,({_INSIDE})\);")
_PART = re.compile(r"(?:[^,()\"]|\"(?:\\.|[^\"\\])*\"|\([^()]*\))+")
_STRING = re.compile(r"\"((?:\\.|[^\"\\])*)\"|([a-zA-Z_]\w*)")
# Before a print that only joins what a call above is given.
_IN_A_CALL = re.compile(r"(?m)^(die|fail|refuse) \([^)]*\)\s*\{\s*\Z")
_DEFINED = re.compile(r"(?m)^#define (\w+) ((?:[A-Z_]+ )?\".*\")$")
_INCLUDED = re.compile(r"(?m)^#include \"([^\"]+)\"$")
_MEND = re.compile(r"snprintf \(mend, sizeof mend,\s*((?:\"(?:\\.|[^\"\\])*\"\s*)+)")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# What shows how a program is called, and how the shim writes a line.
_HELP = re.compile(r"usage \(stderr\)|fputs \(help, [^;]*stderr\)|write \(STDERR_FILENO, line, ")


def of(path: str) -> list[Line]:
    """A file's lines, each once, in its order. Raises Unreadable: it says what is found no other
    way."""
    text, known = _read(path), _known(path)
    found = [_said(call[1], _PART.findall(call[2]), known) for call in _CALL.finditer(text)]
    lines = [line for line in found if line] + list(_printed(text, known))
    rest = _HELP.sub("", _PRINT.sub("", text))
    if left := re.search(r".*\b(stderr|STDERR_FILENO)\b.*", rest):
        raise Unreadable(f"{path}: {left[0].strip()}")
    return list(dict.fromkeys(lines))


def _read(path: str) -> str:
    with open(f"{REPOSITORY}/{path}") as file:
        return _COMMENT.sub("", file.read().replace("\\\n", "\n"))


def _known(path: str) -> dict[str, str]:
    """What names stand for that the file, or a header of ours that it includes, defines."""
    known: dict[str, str] = {}
    for name in _INCLUDED.findall(_read(path)):
        for folder in (os.path.dirname(path), "libvcuda"):
            if os.path.exists(f"{REPOSITORY}/{folder}/{name}"):
                known |= _known(f"{folder}/{name}")
                break
    for name, value in _DEFINED.findall(_read(path)):
        known[name] = _text(value, known)
    for mend in _MEND.findall(_read(path)):
        known["mend"] = re.sub(r"%\w+", UNKNOWN, _text(mend, known))
    return known


def _said(function: str, parts: list[str], known: dict[str, str]) -> Line | None:
    # How the function itself is declared, or the macro.
    if "char *" in "".join(parts) or parts[0] == "where":
        return None
    texts = [_text(part.strip(), known) for part in parts]
    if function == "fail":
        del texts[0]  # the exit code
    if function == "refuse":
        texts[1] += " makes no sense"
    if len(texts) == 2:
        texts.append("start the container again, and report it if it stays")
    where, what, mend = texts
    return Line(where, what, mend)


def _printed(text: str, known: dict[str, str]) -> Iterator[Line]:
    for found in _PRINT.finditer(text):
        form, *values = _PART.findall(found[1])
        said = _text(form.strip(), known).removesuffix("\\n")
        for value in values:
            front, _, rest = re.split(r"(%\w+)", said, maxsplit=1)
            said = front + _text(value.strip(), known) + rest
        if not is_passed_on(said) and not _IN_A_CALL.search(text[: found.start()]):
            yield split(said)


def _text(part: str, known: dict[str, str]) -> str:
    if "?" in part and ":" in part.partition("?")[2]:
        forms = part.partition("?")[2]
        strings = re.findall(r"\"(?:\\.|[^\"\\])*\"", forms)
        called = [UNKNOWN] * ("(" in re.sub(r"\"(?:\\.|[^\"\\])*\"", "", forms))
        return " / ".join(called + [_plain(form) for form in strings])
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
