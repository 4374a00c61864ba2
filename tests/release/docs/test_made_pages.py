"""The generated pages equal the code."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from release.docs.commands import REPOSITORY
from support.needed import skip_or_fail

PARTS = ("oci", "runtime_hook", "plugin")


@pytest.mark.parametrize("page", ["settings", "flags"])
def test_a_page_that_is_made_of_the_code_is_as_new_as_the_code(page: str) -> None:
    if not os.path.exists(REPOSITORY + "/build/softgpu/softgpu"):
        skip_or_fail("build/softgpu/softgpu not built; run 'make build'")
    made = subprocess.run(
        [sys.executable, "-B", f"docs/site/{page}_page.py"],
        cwd=REPOSITORY,
        env={"PYTHONPATH": ":".join(PARTS), "COLUMNS": "80", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    with open(f"{REPOSITORY}/docs/{page}.md") as file:
        assert file.read() == made.stdout, "run 'make pages'"
