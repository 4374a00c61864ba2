"""The commands of the documentation, and the expected output.

Commands stand in fenced blocks of the language `sh`, without prompts, so that a reader can paste a
block whole. One that takes root begins with `sudo`; a line that ends with a backslash goes on in
the next; a comment after a command is for the reader. A block of the language `output` shows what
the command before it prints; `…` in it stands for anything.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import re
from dataclasses import dataclass

REPOSITORY = os.path.abspath(__file__).rsplit("/", 4)[0]

_FENCE = re.compile(r"^( *)```(.*)$")
_COMMENT = re.compile(r"(^|\s+)# .*$")
_SUDO = re.compile(r"\bsudo ")


@dataclass(frozen=True)
class Command:
    """text: what is typed, on one line, without `sudo`. output: what the page shows, or ""."""

    page: str
    line: int
    text: str
    is_root: bool
    output: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Block:
    page: str
    line: int  # of its first line, from 1
    language: str
    lines: tuple[str, ...]


def pages() -> list[str]:
    """Every page of the site, from the repository's root."""
    found = [
        p for folder in (".", "bench", "docs") for p in glob.glob(f"{REPOSITORY}/{folder}/*.md")
    ]
    return sorted(os.path.relpath(path, REPOSITORY) for path in found)


def blocks(page: str, text: str) -> list[Block]:
    found: list[Block] = []
    opened: tuple[str, str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and opened is None:
            opened, lines = (fence[1], fence[2].strip(), number + 1), []
        elif fence and opened is not None:
            indent, language, first = opened
            inside = tuple(line.removeprefix(indent) for line in lines)
            found.append(Block(page, first, language, inside))
            opened = None
        else:
            lines.append(line)
    assert opened is None, f"{page}: a block is not closed"
    return found


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    goes_on = False
    for number, line in enumerate(block.lines, block.line):
        text, continues = _goes_on(line)
        if goes_on:
            last = found.pop()
            found.append(_command(block.page, last.line, f"{_typed(last)} {text}"))
        elif text:
            found.append(_command(block.page, number, text))
        goes_on = continues
    return found


def _command(page: str, line: int, typed: str) -> Command:
    return Command(page, line, _SUDO.sub("", typed), bool(_SUDO.search(typed)), "")


def _typed(command: Command) -> str:
    return ("sudo " if command.is_root else "") + command.text


def _goes_on(line: str) -> tuple[str, bool]:
    text = _COMMENT.sub("", line).strip()
    return (text[:-1].rstrip(), True) if text.endswith("\\") else (text, False)


def of_page(page: str) -> list[Command]:
    with open(f"{REPOSITORY}/{page}") as file:
        text = file.read()
    found: list[Command] = []
    for block in blocks(page, text):
        if block.language == "sh":
            found += commands(block)
        elif block.language == "output":
            assert found, f"{page}:{block.line}: an output of no command"
            shown = "".join(line + "\n" for line in block.lines)
            found[-1] = dataclasses.replace(found[-1], output=shown)
    return found


def shows(shown: str, printed: str) -> bool:
    """Whether `told` has what the page shows: whole lines, spaces counted as one."""
    pattern = ".*?".join(re.escape(_narrow(part)) for part in _narrow(shown).split("…"))
    return re.search(rf"(?s)(^|\n){pattern}(\n|$)", _narrow(printed)) is not None


def _narrow(text: str) -> str:
    return "\n".join(re.sub(r"\s+", " ", line).strip() for line in text.strip().splitlines())
