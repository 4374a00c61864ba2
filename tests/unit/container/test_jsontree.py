"""The start path's JSON reader and writer behave as json does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_oci.model import jsontree

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(TREES, st.sampled_from([None, 2]), st.booleans())
def test_reading_agrees_with_json_whatever_the_layout(tree: Any, indent: Any, ascii: bool) -> None:
    text = json.dumps(tree, indent=indent, ensure_ascii=ascii)
    assert jsontree.loads(text) == json.loads(text) == tree


@given(TREES)
def test_writing_agrees_with_json_to_the_byte(tree: Any) -> None:
    assert jsontree.dumps(tree) == json.dumps(tree, separators=(",", ":"))


CUT = TREES.map(json.dumps).flatmap(lambda t: st.integers(0, len(t)).map(lambda end: t[:end]))


@given(st.text() | CUT)
def test_what_json_refuses_is_refused_and_what_it_takes_is_the_same(text: str) -> None:
    try:
        wanted = json.loads(text)
    except ValueError as error:
        with pytest.raises(ValueError) as refused:
            jsontree.loads(text)
        assert str(refused.value) == str(error)
    else:
        assert repr(jsontree.loads(text)) == repr(wanted)  # repr, because NaN is not itself


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1 "b"}', "line 1 column 9"),
        ('{\n "a": nul\n}', "line 2 column 7"),
        ("{} {}", "Extra data: line 1 column 4"),
        ("", "line 1 column 1"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        jsontree.loads(text)


def test_a_mistake_at_any_depth_is_an_ordinary_mistake() -> None:
    """json itself, asked for the place of the mistake, starts a few calls further down."""
    for depth in range(800, 1100):
        with pytest.raises(ValueError):
            jsontree.loads("[" * depth)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "[" * 200_000 + "]" * 200_000])
def test_endless_nesting_is_an_ordinary_mistake(text: str) -> None:
    with pytest.raises(ValueError, match="too deeply"):
        jsontree.loads(text)


def test_a_copy_shares_nothing_with_its_original() -> None:
    tree = {"a": [{"b": 1}], "c": {}}
    copy = jsontree.copy(tree)
    assert copy == tree
    copy["a"][0]["b"], copy["c"]["d"] = 2, 3
    assert tree == {"a": [{"b": 1}], "c": {}}


def test_what_can_be_read_can_be_copied_however_deep() -> None:
    text = "[" * 900 + "]" * 900
    assert jsontree.dumps(jsontree.copy(jsontree.loads(text))) == text


def test_value_that_is_not_json_is_not_written() -> None:
    with pytest.raises(TypeError, match="set is not a JSON value"):
        jsontree.dumps({"a": {1}})
