"""JSON without the ``json`` package, whose import of ``re`` costs 6 ms on every start.

The C scanner and encoder below are the very ones that ``json`` drives. A text that the scanner
refuses goes through ``json`` itself, for its exact message.
"""

from __future__ import annotations

import _json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TOO_DEEP = "nested too deeply"


class _Decoding:
    """The attributes that the C scanner reads from the decoder it belongs to."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}


def loads(text: str) -> Any:
    """Raises ValueError: not one JSON value, with the mistake's place; or nested too deeply."""
    stripped = text.strip(" \t\r\n")
    try:
        scan: Any = _json.make_scanner
        value, end = scan(_Decoding())(stripped, 0)
    except (StopIteration, ValueError, SystemError):
        end = -1
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if end == len(stripped):
        return value
    import json

    try:
        return json.loads(text)
    except RecursionError:  # it scans from a few calls further down
        raise ValueError(_TOO_DEEP) from None


def dumps(value: Any) -> str:
    """Compact, ASCII only, keys in their order.

    Raises TypeError: not a JSON value. ValueError: nested too deeply.
    """

    def refuse(other: Any) -> Any:
        raise TypeError(f"{type(other).__name__} is not a JSON value")

    ascii_string = _json.encode_basestring_ascii
    encode = _json.make_encoder(None, refuse, ascii_string, None, ":", ",", False, False, True)
    try:
        return "".join(encode(value, 0))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def copy(value: Any) -> Any:
    """A deep copy of a JSON tree, made in C, so that no depth that `loads` takes is too deep."""
    return loads(dumps(value))
