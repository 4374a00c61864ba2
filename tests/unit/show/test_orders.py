"""Names of filters and orders stand apart from the code behind them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.files import ROOT
from vcuda_hook.show import orders, ps_fields
from vcuda_oci.model.errors import VcudaError


def test_each_filter_of_the_command_line_has_its_code() -> None:
    assert tuple(ps_fields.FILTERS) == orders.PS_FILTERS
    with pytest.raises(VcudaError, match=", ".join(orders.PS_FILTERS)):
        ps_fields.selected([], ["no=such"])


@pytest.mark.parametrize("order", orders.PS_ORDERS)
def test_each_order_of_the_command_line_sorts(order: str) -> None:
    figures = ("core_percent", "core_used_percent", "memory_used_bytes", "waited_percent")
    names = ("name", "gpu_name", "status", "gpu_index", "created", *figures)
    entries = [dict.fromkeys(names, number) for number in (1, 2)]
    assert sorted(map(str, ps_fields.ordered(entries, order))) == sorted(map(str, entries))


def test_the_command_starts_without_the_code_of_tables() -> None:
    source = "import sys, vcuda_hook.cli.main as m; m.build_parser(); print(*sys.modules)"
    path = ":".join(f"{ROOT}/{folder}" for folder in ("oci", "runtime_hook"))
    ran = subprocess.run(
        [sys.executable, "-c", source], env={"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    )
    modules = ran.stdout.split()
    assert "vcuda_hook.show.orders" in modules
    assert {"vcuda_hook.show.ps_fields", "vcuda_hook.live.views"} & {*modules} == set()
