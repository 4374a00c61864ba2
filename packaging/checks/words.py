"""Refuses pronouns of persons for things, and long names of tests.

A process, a file or a GPU is "it" or its name. A test's name says case and outcome in eight words
or so.
"""

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
_FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_TEST = re.compile(r"^\s*(?:async )?def test_(\w+)", re.MULTILINE)
_MOST_WORDS = 14
# The check itself, its test, and files that are not written by hand.
_SKIPPED = re.compile(r"(checks/words|unit/project/test_words)\.py$|\.(svg|json|xz)$")


def pronouns(path: str, text: str) -> Iterator[str]:
    """Yield a line for each pronoun."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in _PRONOUN.finditer(_MEANT.sub("", line)):
            yield f"{path}:{number}: '{match[0]}': write 'it' or name the thing"


def long_names(path: str, text: str) -> Iterator[str]:
    """Yield a line for each test name of too many words."""
    for match in _TEST.finditer(text):
        words = match[1].count("_") + 1
        if words > _MOST_WORDS:
            number = text.count("\n", 0, match.start(1)) + 1
            yield f"{path}:{number}: a test's name of {words} words: name case and outcome only"


def faults() -> Iterator[str]:
    """Yield a line for each pronoun and each long name in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", *_FOLDERS, *_FILES], capture_output=True, text=True, check=True
    )
    for path in listed.stdout.split():
        if _SKIPPED.search(path):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except UnicodeDecodeError:
            continue  # a picture
        yield from pronouns(path, text)
        if path.startswith("tests/") and path.endswith(".py"):
            yield from long_names(path, text)


def main() -> int:
    found = list(faults())
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
