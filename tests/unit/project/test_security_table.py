"""Each test that docs/security.md names for an attack exists and runs."""

from __future__ import annotations

import ast
import glob
import os
import re

import pytest

from support.files import ROOT

TESTS = ROOT + "/tests"
HOSTILE = "engines/hostile"


def rows() -> list[tuple[str, list[str]]]:
    """Each attack of the table and the tests that its row names, as FILE::TEST."""
    with open(ROOT + "/docs/security.md") as page:
        lines = [line for line in page if line.startswith("| **")]
    return [
        (re.findall(r"\*\*(.*?)\*\*", line)[0], re.findall(r"`(\S+\.py::\w+)`", line))
        for line in lines
    ]


def path_of(file: str) -> str:
    return f"{TESTS}/{file}"


def functions_of(path: str) -> dict[str, ast.FunctionDef]:
    """The file's tests."""
    found = [node for node in parsed(path).body if isinstance(node, ast.FunctionDef)]
    return {node.name: node for node in found if node.name.startswith("test_")}


def parsed(path: str) -> ast.Module:
    with open(path) as file:
        return ast.parse(file.read())


def check_named(tests: list[str]) -> None:
    """Fails if one of the tests, FILE::TEST each, is not there or asserts nothing."""
    for name in tests:
        file, _, test = name.partition("::")
        node = functions_of(path_of(file)).get(test)
        assert node is not None, f"{name} is not there"
        assert "assert" in ast.unparse(node), f"{name} asserts nothing"


@pytest.mark.parametrize(("attack", "named"), rows(), ids=lambda value: str(value)[:40])
def test_each_attack_is_held_by_tests_that_are_there_and_assert(
    attack: str, named: list[str]
) -> None:
    assert named, attack
    check_named(named)


def test_every_attack_has_tests_and_every_hostile_test_a_row() -> None:
    table = rows()
    assert len(table) >= 15
    named = {name for _, tests in table for name in tests}
    names = [name for name in os.listdir(f"{TESTS}/{HOSTILE}") if name.startswith("test_hostile")]
    files = [f"{HOSTILE}/{name}" for name in names]
    written = {f"{file}::{test}" for file in files for test in functions_of(path_of(file))}
    assert written - named == set()


def test_only_needed_cannot_skips_a_test_and_what_a_cluster_has_not() -> None:
    """needed.cannot fails in CI, so CI skips nothing but the tests on a Kubernetes. There what an
    older version lacks is skipped too, once the refusal that its user gets is seen."""
    skipping = []
    for path in glob.glob(TESTS + "/**/*.py", recursive=True):
        if path.startswith(TESTS + "/cluster/"):
            continue
        nodes = ast.walk(parsed(path))
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        if used & {"skip", "skipif", "importorskip", "xfail", "SkipTest", "skipTest"}:
            skipping.append(os.path.relpath(path, TESTS))
    assert skipping == ["support/needed.py"]
