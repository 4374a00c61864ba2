"""The extender's JSON without orjson: the same trees and the same refusals."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from vcuda_plugin.kube import json_bytes

TREE = {"Pod": {"é": [1, -2, 0.5, True, None]}, "NodeNames": ["a", ""], "Error": '"\\\n'}
REFUSED = [b"", b"{", b'{"a": NaN}', b'["\xff"]', b"[" * 100_000, b"{} {}"]


@pytest.fixture
def without_orjson(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setitem(sys.modules, "orjson", None)
    yield importlib.reload(json_bytes)
    monkeypatch.undo()
    importlib.reload(json_bytes)


def test_without_orjson_the_same_is_read_and_written(without_orjson: Any) -> None:
    assert without_orjson.loads is not orjson.loads
    assert without_orjson.loads(orjson.dumps(TREE)) == TREE
    assert orjson.loads(without_orjson.dumps(TREE)) == TREE


@pytest.mark.parametrize("text", REFUSED)
def test_what_orjson_refuses_is_refused_without_it(without_orjson: Any, text: bytes) -> None:
    with pytest.raises(ValueError):
        orjson.loads(text)
    with pytest.raises(ValueError):
        without_orjson.loads(text)
