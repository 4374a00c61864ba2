"""Mutate values of a JSON text, which a mutator of bytes seldom does."""

from __future__ import annotations

import json
import random
from typing import Any

# Texts of values at the edges of numbers, of text, of kind.
VALUES = [
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e999",
    "NaN",
    "-Infinity",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "9" * 400,
    "9" * 5000,
    '""',
    '"/"',
    '".."',
    '"a\\u0000b"',
    '"\\ud800"',
    '"\\u2028"',
    '"é\\n"',
    '"' + "x" * 5000 + '"',
    "[]",
    "{}",
    "[[]]",
    '{"":""}',
    "[" * 100_000,
    '{"a":' * 5000,
]
# The scanner and the writer give up near 1000, each a little earlier or later than the other.
DEPTHS = [900, *range(960, 1000), 5000]
_MARK = "\1"


def mutate(text: bytes, seed: int) -> bytes | None:
    """The text with one place changed; None: it is not JSON."""
    chance = random.Random(seed)
    depth = chance.choice(DEPTHS)
    value = chance.choice([*VALUES, *["[" * depth + "]" * depth] * 8])
    try:
        tree: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    places: list[tuple[Any, Any]] = []
    _collect(tree, places)
    if not places:
        return value.encode()
    parent, key = chance.choice(places)
    choice = chance.randrange(6)
    if choice == 0:
        del parent[key]
    elif choice == 1:
        other, at = chance.choice(places)
        parent[key] = other.get(at) if isinstance(other, dict) else [*other, None][at]
    elif choice == 2 and isinstance(parent, dict):
        parent[f"{key}{_MARK}"] = _MARK  # said twice
    else:
        parent[key] = _MARK
    try:
        changed = json.dumps(tree, ensure_ascii=chance.random() < 0.5)
    except (ValueError, RecursionError):
        return None
    mark = json.dumps(_MARK)
    changed = changed.replace(mark, value).replace(mark.strip('"'), "")
    return changed.encode("utf-8", "surrogatepass")


def _collect(tree: Any, places: list[tuple[Any, Any]], depth: int = 0) -> None:
    if not isinstance(tree, (dict, list)):
        return
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        places.append((tree, key))
        if depth < 50:
            _collect(value, places, depth + 1)
