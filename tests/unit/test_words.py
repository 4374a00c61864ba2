"""The check that keeps pronouns of persons out of sources and pages."""

from __future__ import annotations

import sys

import pytest

from support.files import ROOT

sys.path.insert(0, ROOT + "/packaging/checks")

import words  # type: ignore[import-not-found, unused-ignore]


@pytest.mark.parametrize(
    "line",
    ["a process whose share", "/* Who waits, and for whom.  */", "nobody reads it", "HE ends"],
)
def test_a_pronoun_for_a_thing_is_named_with_its_place(line: str) -> None:
    found = words.pronouns("a/b.py", "fine\n" + line)
    assert [(path, number) for path, number, _ in found][:1] == [("a/b.py", 2)]
    assert words.faults(found, {})[0].startswith("a/b.py:2: '")


@pytest.mark.parametrize("line", ["a user who may open it", "The user nobody", "whole"])
def test_persons_stay(line: str) -> None:
    assert words.pronouns("a/b.py", line) == []


@pytest.mark.parametrize("allowed, faults", [(1, 1), (2, 0), (3, 1)])
def test_an_allowance_is_exact(allowed: int, faults: int) -> None:
    found = words.pronouns("old/x.c", "who\nwhose\n")
    assert len(words.faults(found, {"old": allowed})) == faults


def test_the_product_keeps_to_its_allowances() -> None:
    assert words.main() == 0
