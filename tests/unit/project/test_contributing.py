"""CONTRIBUTING names only files that are there."""

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
