"""The check that keeps pronouns of persons and long test names out of sources and pages."""

from __future__ import annotations

import sys

import pytest

from support.files import ROOT

sys.path.insert(0, ROOT + "/packaging/checks")

import words  # type: ignore[import-not-found, unused-ignore]


@pytest.mark.parametrize(
    "line",
    ["a process whose share", "/* Who waits.  */", "nobody reads it", "HE ends"],
)
def test_a_pronoun_for_a_thing_is_named_with_its_place(line: str) -> None:
    (found,) = words.pronouns("a/b.py", "fine\n" + line)
    assert found.startswith("a/b.py:2: '")


@pytest.mark.parametrize("line", ["a user who may open it", "The user nobody", "whole"])
def test_persons_stay(line: str) -> None:
    assert list(words.pronouns("a/b.py", line)) == []


def test_a_long_test_name_is_named_with_its_place() -> None:
    fine, long = "_".join("x" * 14), "_".join("x" * 15)
    text = f"def test_{fine}():\n    pass\n\n\ndef test_{long}():\n    pass\n"
    (found,) = words.long_names("tests/a.py", text)
    assert found.startswith("tests/a.py:5: ")


def test_the_repository_has_none() -> None:
    assert list(words.faults()) == []
