"""A named slice is claimed by the same rules as a container's share."""

from __future__ import annotations

from typing import Any

import pytest

from unit.ground import GIB
from unit.test_cdi import Node
from vcuda_oci import grant, pages_read


def test_the_settings_count_for_slices_too(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "shim").touch()
    monkeypatch.setattr(grant, "SHIM", f"{tmp_path}/shim")
    settings = 'memory-overcommit = "1.5"\ncontext-memory = "300MiB"\nmeter-copies = "yes"\n'
    node = Node(str(tmp_path), 1, more=settings)
    asked = ["--slice", "a=core:30,memory:14GiB", "--slice", "b=core:30,memory:10GiB"]
    assert node.cdi("generate", *asked) == 0
    assert node.shares() == {
        "cdi@a": [("GPU-0", 30, 14 * GIB)],
        "cdi@b": [("GPU-0", 30, 10 * GIB)],
    }
    for name in ("a", "b"):
        with open(f"{node.ledger.containers}/cdi@{name}/limits", "rb") as file:
            page = pages_read.read_limits(file.read())
        (gpu,) = page.gpus
        told = (page.meter_copies, gpu.context_bytes, bool(gpu.managed_memory))
        assert told == (True, 300 << 20, True)
    assert node.cdi("generate", "--slice", "c=core:30,memory:1GiB") == 1
    assert capsys.readouterr().err.startswith("vcuda: placement: ")
