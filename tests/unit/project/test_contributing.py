"""CONTRIBUTING names only files, functions and constants that are there."""

from __future__ import annotations

import glob
import re

from support.files import ROOT

FOLDERS = "bench|docs|libvcuda|oci|packaging|plugin|runtime_hook|tests"


def test_each_path_in_contributing_leads_to_a_file() -> None:
    with open(f"{ROOT}/CONTRIBUTING.md", encoding="utf-8") as file:
        paths = set(re.findall(rf"`((?:{FOLDERS})/[\w./*-]+)`", file.read()))
    assert len(paths) > 150
    assert [path for path in sorted(paths) if not glob.glob(f"{ROOT}/{path}")] == []


def test_each_name_in_the_table_of_tasks_stands_in_the_sources() -> None:
    with open(f"{ROOT}/CONTRIBUTING.md", encoding="utf-8") as file:
        table = file.read().partition("## Where to change what")[2].partition("## Commits")[0]
    named = {one for one in re.findall(r"`([A-Za-z_]\w{3,})`", table) if "NAME" not in one}
    assert len(named) > 100
    known: set[str] = set()
    for folder in (*FOLDERS.split("|"), ".ci"):
        for path in glob.glob(f"{ROOT}/{folder}/**/*", recursive=True):
            if path.endswith((".py", ".c", ".h", ".list", ".mk", ".json", ".yaml", ".toml", ".sh")):
                with open(path, encoding="utf-8", errors="replace") as file:
                    known.update(re.findall(r"\w+", file.read()))
    assert sorted(named - known) == []
