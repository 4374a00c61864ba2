"""Repeated polls of the records read each change once."""

from __future__ import annotations

import os
import time
from typing import Any

from support.ledger.tenants import Tenants
from vcuda_plugin.agent.ledger.records import Records


def ids(records: Records) -> list[str]:
    return [allocation.id for allocation in records.read()]


def test_each_change_is_seen_and_what_has_settled_is_not_read_again(tmp_path: Any) -> None:
    tenants = Tenants(str(tmp_path))
    records = Records(tenants.state_dir)
    assert ids(records) == []
    for number in range(20):
        tenants.add_record(f"box-{number}")
        assert len(ids(records)) == number + 1
    with tenants.ledger:
        tenants.ledger.remove("box-0")
    assert "box-0" not in ids(records)
    time.sleep(0.2)
    records.read()
    before = records.changes
    for _ in range(5):
        assert len(ids(records)) == 19
    assert records.changes == before


def test_a_broken_record_that_is_repaired_in_place_is_read(tmp_path: Any) -> None:
    tenants = Tenants(str(tmp_path))
    tenants.add_record("box")
    path = f"{tenants.ledger.allocations}/box.json"
    os.chmod(path, 0o666)  # a user with write access to a record could take a GPU
    records = Records(tenants.state_dir)
    time.sleep(0.2)
    assert records.read() == [] and [found for found, _ in records.broken] == [path]
    os.chmod(path, 0o644)
    assert ids(records) == ["box"]
