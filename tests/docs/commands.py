"""The commands of the documentation, and what it shows of their output.

They are in fenced blocks of the language `console`: `# ` before a line is root's prompt, `$ ` a
user's, a line that ends with a backslash goes on in the next, and what follows is the output, in
which `…` stands for anything. A comment after a command is for the reader.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

_FENCE = re.compile(r"^( *)```(.*)$")
_COMMENT = re.compile(r"\s+# .*$")


@dataclass(frozen=True)
class Command:
    """text: what is typed, on one line. output: what is shown beneath, or ""."""

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
    """Raises ValueError: output before the first prompt."""
    found: list[Command] = []
    goes_on = False
    for number, line in enumerate(block.lines, block.line):
        if goes_on:
            last = found.pop()
            text, goes_on = _goes_on(line)
            found.append(Command(last.page, last.line, f"{last.text} {text}", last.is_root, ""))
        elif line[:2] in ("# ", "$ "):
            text, goes_on = _goes_on(line[2:])
            found.append(Command(block.page, number, text, line[0] == "#", ""))
        elif found:
            last = found.pop()
            output = f"{last.output}{line}\n"
            found.append(Command(last.page, last.line, last.text, last.is_root, output))
        else:
            raise ValueError(f"{block.page}:{number}: '{line}' has no prompt: begin it with # or $")
    return found


def _goes_on(line: str) -> tuple[str, bool]:
    text = _COMMENT.sub("", line).strip()
    return (text[:-1].rstrip(), True) if text.endswith("\\") else (text, False)


def of_page(page: str) -> list[Command]:
    with open(f"{REPOSITORY}/{page}") as file:
        text = file.read()
    console = [block for block in blocks(page, text) if block.language == "console"]
    return [command for block in console for command in commands(block)]


def shows(shown: str, told: str) -> bool:
    """Whether `told` has what the page shows: whole lines, spaces counted as one."""
    pattern = ".*?".join(re.escape(_narrow(part)) for part in _narrow(shown).split("…"))
    return re.search(rf"(?s)(^|\n){pattern}(\n|$)", _narrow(told)) is not None


def _narrow(text: str) -> str:
    return "\n".join(re.sub(r"\s+", " ", line).strip() for line in text.strip().splitlines())
