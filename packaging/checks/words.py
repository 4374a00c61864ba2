"""Refuses pronouns of persons in sources and pages: a process, a file or a GPU is "it" or its name.

A folder that is not rewritten yet has an allowance, which may only shrink: a count below it is
refused too, so that each rewrite lowers the number here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

_PRONOUN = re.compile(
    r"\b(who|whom|whose|whoever|nobody|anybody|somebody|everybody|he|him|himself)\b", re.IGNORECASE
)
# What stays: persons and the account "nobody".
_MEANT = re.compile(r"""\b(user|person|author|people)s? who\b|user nobody\b|"nobody"|\bNOBODY\b""")
_FOLDERS = ("oci", "runtime_hook", "plugin", "libvcuda", "packaging", "docs", "tests")
_FILES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
# The check itself, its test, and files that are not written by hand.
_SKIPPED = re.compile(
    r"packaging/checks/words\.py$|tests/unit/test_words\.py$|\.svg$|\.json$|\.xz$"
)
# Lines in a folder; the longest name that fits counts.
ALLOWED = {
    "plugin/vcuda_plugin/agent/compute": 64,
}


def pronouns(path: str, text: str) -> list[tuple[str, int, str]]:
    """(path, line number, word) of each pronoun."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        found += [(path, number, match[0]) for match in _PRONOUN.finditer(_MEANT.sub("", line))]
    return found


def faults(found: list[tuple[str, int, str]], allowed: dict[str, int]) -> list[str]:
    """One line for each pronoun outside of the allowances, and for each wrong allowance."""
    lines, counts = [], Counter[str]()
    for path, number, word in found:
        folder = max((name for name in allowed if path.startswith(name)), key=len, default="")
        counts[folder] += 1
        if not folder:
            lines.append(f"{path}:{number}: '{word}': write 'it' or name the thing")
    for folder, most in allowed.items():
        if counts[folder] > most:
            lines.append(f"{folder}: {counts[folder]} pronouns of persons; at most {most} allowed")
        elif counts[folder] < most:
            lines.append(f"{folder}: lower its allowance in {__file__} to {counts[folder]}")
    return lines


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", *_FOLDERS, *_FILES], capture_output=True, text=True, check=True
    )
    found = []
    for path in listed.stdout.split():
        if _SKIPPED.search(path):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                found += pronouns(path, file.read())
        except UnicodeDecodeError:
            continue  # a picture
    wrong = faults(found, ALLOWED)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
