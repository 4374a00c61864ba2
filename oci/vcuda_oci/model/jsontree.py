"""JSON without the ``json`` package, which imports ``re`` and so takes 6 ms on every start.

``json`` uses the same C scanner and encoder. It is imported only for a text that the scanner
refuses, for its error message.
"""

from __future__ import annotations

import _json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TOO_DEEP = "nested too deeply"


class _Decoding:
    """The attributes that the C scanner reads from its decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}


def loads(text: str) -> Any:
    """Parse one JSON value. Raises ValueError: not JSON, with the position; or too deep."""
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
    import json  # only for its error message

    try:
        return json.loads(text)
    except RecursionError:  # json makes some more calls than the scanner above
        raise ValueError(_TOO_DEEP) from None


def dumps(value: Any) -> str:
    """Encode compactly, in ASCII, keys in their order.

    Raises TypeError: not a JSON value. ValueError: nested too deeply.
    """

    def refuse(other: Any) -> Any:
        raise TypeError(f"{type(other).__name__} is not a JSON value")

    ascii_string = _json.encode_basestring_ascii
    encode = _json.make_encoder(None, refuse, ascii_string, None, ":", ",", False, False, True)  # noqa: FBT003 - takes no names
    try:
        return "".join(encode(value, 0))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def copy(value: Any) -> Any:
    """A deep copy of a JSON tree. Copying in C handles any depth that `loads` accepts."""
    return loads(dumps(value))
