"""Each test that docs/handoff.md names for a failure exists."""

from __future__ import annotations

import re

import pytest

from support.files import ROOT
from unit.project.test_security_table import check_named, functions_of, path_of


def rows() -> list[tuple[str, list[str]]]:
    """Each failure of the table and the tests that its row names, as FILE::TEST."""
    with open(ROOT + "/docs/handoff.md") as page:
        table = page.read().partition("## What it survives")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][2:]
    return [(line.split("|")[1], re.findall(r"`(\S+\.py::\w+)`", line)) for line in lines]


@pytest.mark.parametrize(("failure", "named"), rows(), ids=lambda value: str(value)[:40])
def test_each_failure_is_survived_in_tests_that_are_there_and_assert(
    failure: str, named: list[str]
) -> None:
    assert named, failure
    check_named(named)


def test_every_engine_test_of_decisions_is_in_a_row() -> None:
    named = {name for _, tests in rows() for name in tests}
    for file in (
        "engines/pods/test_placement_decision.py",
        "engines/pods/test_placement_decision_refusals.py",
        "engines/pods/test_placement_decision_hami.py",
    ):
        written = {f"{file}::{test}" for test in functions_of(path_of(file))}
        of_settings = {name for name in written if "::test_where_" in name}
        assert written - of_settings - named == set()
    assert len(rows()) == 24
