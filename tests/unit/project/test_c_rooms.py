"""The check that C includes go only to lower rooms."""

from __future__ import annotations

import os
import sys

import pytest

from support.files import ROOT

sys.path.insert(0, ROOT + "/packaging/checks")

import c_rooms  # type: ignore[import-not-found, unused-ignore]

TREE = c_rooms.Tree("tree", ["top", "left right", "bottom"], {"left/a left/b": "the reason"})


def test_the_product_has_no_fault() -> None:
    assert [list(c_rooms.faults(tree, ROOT)) for tree in c_rooms.TREES] == [[]] * len(c_rooms.TREES)


# By file: its text. Headers that are included exist, each empty.
ALLOWED = {
    "header of a lower room": ("left/x.c", '#include "bottom/y.h"\n'),
    "header of the own room": ("left/x.c", '#include "left/y.h"\n'),
    "header of no room": ("left/x.c", '#include "real.h"\n#include <errno.h>\n'),
    "extern in a header": ("left/x.h", "extern int any;\n"),
}
REFUSED = {
    "header of a higher room": (
        "left/x.c",
        '#include "top/y.h"\n',
        "left/x.c: includes top/y.h, which is not on a lower layer",
    ),
    "header of a room beside it": (
        "left/x.h",
        '#include "right/y.h"\n',
        "left/x.h: includes right/y.h, which is not on a lower layer",
    ),
    "header without its room": (
        "left/x.c",
        '#  include "y.h"\n',
        "left/x.c: includes y.h without its room",
    ),
    "declaration by hand": (
        "left/x.c",
        "extern int any;\n",
        "left/x.c: extern int any; include its header",
    ),
    "room that has no layer": (
        "new/x.c",
        "",
        "new/x.c: new is no room of TREES in packaging/checks/c_rooms.py",
    ),
    "file in no room": (
        "x.c",
        "",
        "x.c: the top is no room of TREES in packaging/checks/c_rooms.py",
    ),
}


def found(folder: str, files: dict[str, str]) -> list[str]:
    for path, text in {"left/y.h": "", **files}.items():
        path = f"{folder}/tree/{path}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return list(c_rooms.faults(TREE, folder))


@pytest.mark.parametrize("case", ALLOWED.values(), ids=ALLOWED)
def test_an_include_on_its_way_down_is_allowed(tmp_path: str, case: tuple[str, str]) -> None:
    path, text = case
    assert found(str(tmp_path), {path: text}) == []


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_wrong_include_is_refused(tmp_path: str, case: tuple[str, str, str]) -> None:
    path, text, fault = case
    assert found(str(tmp_path), {path: text}) == [fault]


def test_a_circle_within_a_room_is_refused(tmp_path: str) -> None:
    circle = {"left/x.c": '#include "left/y.h"\n', "left/y.c": '#include "left/x.h"\n'}
    (fault,) = found(str(tmp_path), {**circle, "left/x.h": ""})
    assert fault.startswith("circle of includes: left/")


def test_a_circle_with_a_reason_is_allowed(tmp_path: str) -> None:
    circle = {"left/a.h": '#include "left/b.h"\n', "left/b.h": '#include "left/a.h"\n'}
    assert found(str(tmp_path), circle) == []
