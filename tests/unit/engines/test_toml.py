"""vcuda's TOML reader compared with `tomllib`: the same trees, the same refusals."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.needed import skip_or_fail
from vcuda_hook.engines.texts import toml_text
from vcuda_hook.engines.texts.toml_values import TomlError, quoted, written

if sys.version_info < (3, 11):
    skip_or_fail("tomllib came with Python 3.11")
import tomllib

# Few, so that tables meet each other again.
KEYS = st.sampled_from(["a", "b", "c", "a-1", '"a"', "'b'", '"io.x/y"', '""', '"\\u0061"', "1"])
SCALARS = st.sampled_from(
    [
        "0", "-17", "+3", "1_000", "01", "0x_1", "0xfF", "0o17", "0b1_0", "1__0", "_1",
        "1.5", "-0.0", "1e3", "1.", ".5", "1.5e-3", "inf", "-nan", "+inf", "1e",
        "true",
            "false",
            "True",
            "truex",
            '""',
            "''",
            '"a\\tb\\"c"',
            "'a\\tb'",
            '"\\q"',
            '"\x01"',
        '"\\ud800"', '"\\U0001F600"', '"open', "'it''s'", "'\x7f'", '"é"', "\x00",
        '"""a\n  b"""', "'''\na'b''c'''", '"""a\\\n   b"""', '""""a"""""', '"""\\', '"""x""',
        "1979-05-27", "1979-05-27T07:32:00Z", "1979-05-27 07:32:00.1234567-07:00",
        "07:32:00", "07:32:60", "1979-02-30", "1979-05-27T07:32", "1979-05-27T07:32:00+24:00",
        "{}", "[]", "{a = 1, }", "[1,]", "[,]", "{a = 1\n}", "{", "[1 2]", "{a.b = 1, a.c = 2}",
        "{a = 1, a = 2}", "{a.b = 1, a = 2}", "[[1], {a = []}]", "[ # x\n 1,\n\n 2 # y\n]", "",
    ]
)  # fmt: skip
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(" . ".join) | KEYS
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
        | st.lists(st.tuples(PATHS, inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key} = {value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=4,
)
GOOD_VALUES = st.sampled_from(["1", '"x"', "[1, 2]", "{a = 1}", "{b.c = 1}", "[{a = 1}]", "true"])
LINES = st.one_of(
    st.builds("{} = {}".format, PATHS, GOOD_VALUES),
    st.builds("[{}]".format, PATHS),
    st.builds("[[{}]]".format, PATHS),
    st.sampled_from(["", "# comment", "  # \t é", "a", "[", "[[a]", "[a]]", "= 1", "a = 1 b = 2"]),
)
DOCUMENTS: st.SearchStrategy[str] = st.builds(
    lambda lines, newline, end: newline.join(lines) + end,
    st.lists(LINES, max_size=7),
    st.sampled_from(["\n", "\r\n", "\n  "]),
    st.sampled_from(["", "\n", " # end", "\r"]),
)


def comparable(tree: Any) -> Any:
    """NaN is not equal to itself; the order of keys means nothing."""
    if isinstance(tree, dict):
        return {key: comparable(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [comparable(item) for item in tree]
    return (type(tree), repr(tree))


def assert_read_alike(text: str) -> None:
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(TomlError):
            toml_text.parse(text)
    else:
        assert comparable(toml_text.parse(text)) == comparable(expected)


@settings(max_examples=600)
@given(VALUES)
def test_values_are_read_as_tomllib_reads_them(value: str) -> None:
    assert_read_alike(f"key = {value}")


@settings(max_examples=1500)
@given(DOCUMENTS)
def test_documents_are_read_as_tomllib_reads_them(text: str) -> None:
    assert_read_alike(text)


@settings(max_examples=400)
@given(st.text(), st.lists(st.integers() | st.booleans() | st.text()))
def test_what_we_write_is_read_as_it_was_meant(text: str, items: list[Any]) -> None:
    if any("\ud800" <= c <= "\udfff" for c in text + "".join(map(str, items))):
        return  # no UTF-8 file has them
    line = f"{quoted(text)} = {written(items)}\n"
    assert toml_text.parse(line) == tomllib.loads(line) == {text: items}


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 20000,
        "a = " + "9" * 5000,
        "a = {b = " * 5000,
    ],
    ids=["deep arrays", "a long number", "deep tables"],
)
def test_excessive_toml_is_refused_without_a_crash(text: str) -> None:
    with pytest.raises(TomlError):
        toml_text.parse(text)


def test_a_mistake_is_reported_with_its_line() -> None:
    text = 'a = 1\r\n\r\n[b]\r\nc = "open\r\n'
    with pytest.raises(TomlError) as raised:
        toml_text.parse(text)
    assert toml_text.line_of(text, raised.value) == 4
