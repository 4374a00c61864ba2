"""A late import, one inside a function, says why it is late."""

from __future__ import annotations

import ast
import glob
from collections.abc import Iterator

from support.files import ROOT

PACKAGES = ("oci/vcuda_oci", "runtime_hook/vcuda_hook", "plugin/vcuda_plugin")
Function = (ast.FunctionDef, ast.AsyncFunctionDef)
Import = (ast.Import, ast.ImportFrom)


def without_reason(source: str) -> Iterator[int]:
    """Yield the lines of late imports without a comment there or above, if the docstring of their
    function does not speak of imports either."""
    lines = source.splitlines()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, Function) or "import" in (ast.get_docstring(function) or ""):
            continue
        is_explained = False
        late = [each for each in ast.walk(function) if isinstance(each, Import)]
        for node in sorted(late, key=lambda each: each.lineno):
            near = lines[node.lineno - 2 : node.end_lineno]
            # A comment is for the imports that follow it, too.
            is_explained = any("#" in line for line in near) or (
                is_explained and near[0].lstrip().startswith(("from ", "import "))
            )
            if not is_explained:
                yield node.lineno


def test_a_late_import_has_its_reason() -> None:
    found = []
    for package in PACKAGES:
        for path in glob.glob(f"{ROOT}/{package}/**/*.py", recursive=True):
            with open(path, encoding="utf-8") as file:
                found += [f"{path}:{line}" for line in without_reason(file.read())]
    assert found == []


def test_an_import_without_a_reason_is_found() -> None:
    assert list(without_reason("def f():\n    x = 1\n    import os\n")) == [3]
    assert list(without_reason("def f():\n    x = 1\n    import os  # late\n    import re\n")) == []
