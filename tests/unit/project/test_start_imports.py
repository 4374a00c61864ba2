"""What starts often imports little: `vcuda`, and the process that calls the driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from support.files import ROOT
from vcuda_hook.show import choices, ps_fields
from vcuda_oci.model.errors import VcudaError

LOOK = """
import sys
sys.path[:0] = sys.argv[1].split(":")
{start}
print(*sorted(set(sys.modules) & set({unneeded!r})))
"""
# The tables of `ps` and `top`, and the slowest of what they import.
TABLES = ("vcuda_hook.show.ps_fields", "vcuda_hook.show.top_screen", "vcuda_hook.live.views")


@pytest.mark.parametrize(
    ("start", "unneeded"),
    [
        ("from vcuda_hook.cli import main; main.build_parser()", (*TABLES, "json", "subprocess")),
        ("import vcuda_hook.suspend.control", ("dataclasses",)),
        ("import vcuda_hook.show.ps", ("dataclasses",)),
        ("import vcuda_hook.checkpoint.driver_worker", ("json", "re", "threading", "functools")),
    ],
)
def test_start_imports_nothing_unneeded(start: str, unneeded: Sequence[str]) -> None:
    program = LOOK.format(start=start, unneeded=unneeded)
    words = [sys.executable, "-ISc", program, f"{ROOT}/oci:{ROOT}/runtime_hook"]
    assert subprocess.check_output(words, text=True).split() == []


def test_options_of_ps_name_every_filter_and_order() -> None:
    assert list(choices.PS_FILTERS) == list(ps_fields.FILTERS)
    with pytest.raises(VcudaError, match=", ".join(choices.PS_FILTERS)):
        ps_fields.selected([], ["no=such"])
    for order in choices.PS_ORDERS:
        assert ps_fields.ordered([], order) == []
