"""Refuses pronouns of persons for things: a process, a file or a GPU is "it" or its name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

_PRONOUN = re.compile(
    r"\b(who|whom|whose|whoever|nobody|anybody|somebody|everybody|he|him|himself)\b", re.IGNORECASE
)
# What stays: persons and the account "nobody".
_MEANT = re.compile(r'\b(user|person|author|people)s? who\b|user nobody\b|"nobody"|\bNOBODY\b')
_FOLDERS = ("oci", "runtime_hook", "plugin", "libvcuda", "packaging", "docs", "tests")
_FILES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
# The check itself, its test, and files that are not written by hand.
_SKIPPED = re.compile(r"(checks/words|unit/test_words)\.py$|\.(svg|json|xz)$")


def pronouns(path: str, text: str) -> Iterator[str]:
    """Yield a line for each pronoun."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in _PRONOUN.finditer(_MEANT.sub("", line)):
            yield f"{path}:{number}: '{match[0]}': write 'it' or name the thing"


def faults() -> Iterator[str]:
    """Yield a line for each pronoun in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", *_FOLDERS, *_FILES], capture_output=True, text=True, check=True
    )
    for path in listed.stdout.split():
        if _SKIPPED.search(path):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                yield from pronouns(path, file.read())
        except UnicodeDecodeError:
            continue  # a picture


def main() -> int:
    found = list(faults())
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
