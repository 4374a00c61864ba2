"""Without the arm64 cross compiler's libraries only the packages of amd64 are built."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from release.packages import built


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    """Of which nothing of arm64's is there, where Debian cannot be reached."""
    built.folder()
    folder = f"{tmp_path}/vcuda"
    built.checkout(folder, with_build=True)
    os.unlink(folder + "/build/arm64/musl")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    program = tmp_path / "bin/mmdebstrap"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'E: Debian cannot be reached'\nexit 100\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SOURCE_DATE_EPOCH": str(built.epoch())}


def test_the_others_are_made_and_the_missing_ones_are_named(
    checkout: str, environment: dict[str, str]
) -> None:
    words = ["make", "-o", "build", "packages"]
    done = subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert errors == [
        "E: Debian cannot be reached",
        "packaging/musl-arm64: Debian's musl for arm64: not fetched; correct the error of "
        "mmdebstrap above",
        "packaging/packages: build/arm64/musl: is missing, so arm64's packages are not made; "
        "run 'make arm64'",
    ]
    made = set(os.listdir(checkout + "/build/packages"))
    here = set(os.listdir(built.folder()))
    assert made < here
    assert {name for name in here - made if "arm64" in name or "aarch64" in name} == here - made
    assert len(here - made) == 2
