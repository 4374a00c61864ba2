"""The page of common errors quotes what the programs print."""

from __future__ import annotations

import re
from pathlib import Path

from release.packages.hosts.machine import REPOSITORY

_FOLDERS = ("oci", "runtime_hook", "plugin", "libvcuda")
_ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def test_every_quoted_error_is_in_the_sources() -> None:
    quoted = _ROW.findall(Path(REPOSITORY, "docs/errors.md").read_text())
    assert len(quoted) > 30
    files = (file for folder in _FOLDERS for file in Path(REPOSITORY, folder).rglob("*.[chp]*"))
    sources = "\n".join(file.read_text() for file in files if file.suffix in (".c", ".h", ".py"))
    # What stands for a name or a figure, and what ends an error's text, splits it.
    fixed = {part for each in quoted for part in re.split(r"\s*(?:…|; )\s*", each) if len(part) > 7}
    assert {part for part in fixed if part not in sources} == set()
