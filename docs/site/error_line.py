"""A line that a program says when something is wrong, as docs/errors.md has it."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNKNOWN = "…"

_ID = re.compile(r" \(allocation (<\w+>)+\)\Z")
_PASSED_ON = re.compile(rf"([a-z -]+: )?(<[^>]*>|{UNKNOWN}|[: ])+")


class Line(NamedTuple):
    """mend: empty in a warning, after which the program goes on by itself; where is empty too."""

    where: str
    what: str
    mend: str


class Unreadable(Exception):
    """Something is said that these pages cannot show."""


def split(said: str) -> Line:
    """Of `program: where: what; mend`, each of which may lack, without the id at its end."""
    said = _ID.sub("", said)
    front, _, mend = said.rpartition("; ")
    program, _, rest = (front or said).partition(": ")
    where, _, what = rest.rpartition(": ")
    return Line(where or program, what, mend if front else "")


def is_passed_on(said: str) -> bool:
    """Whether it is only what another has said, which is found there."""
    return bool(_PASSED_ON.fullmatch(said))
