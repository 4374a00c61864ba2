"""The same commit builds the same packages in another place and time."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.packages import built


def sums(folder: str) -> dict[str, str]:
    with open(folder + "/SHA256SUMS") as lines:
        return {name: digest for digest, name in (line.split() for line in lines)}


@pytest.mark.timeout(900)  # it compiles everything, beside whatever else runs
def test_two_checkouts_of_a_commit_give_the_same_bytes(tmp_path: Path) -> None:
    here = built.folder()
    elsewhere = f"{tmp_path}/a folder of another length"
    built.checkout(elsewhere)
    built.build(elsewhere, built.epoch())
    assert sums(elsewhere + "/build/packages") == sums(here)
