"""A change of a build file recompiles what depends on it."""

from __future__ import annotations

import glob
import os
import subprocess

from support.files import ROOT


def test_a_change_of_the_shims_build_file_compiles_each_source_again() -> None:
    # -W: as if changed now. -o: the generated files count as current, as after a build.
    words = ["make", "--no-print-directory", "-n", "-o", "build/generated/.made"]
    listed = subprocess.run(
        [*words, "-W", "libvcuda/build.mk", "compile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    compiled = {line.split()[-1].strip('"') for line in listed.splitlines() if '"cc  ' in line}
    assert {
        os.path.relpath(path, ROOT) for path in glob.glob(f"{ROOT}/libvcuda/shim/*/*.c")
    } <= compiled
