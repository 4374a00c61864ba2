"""Rights to suspend, and the suspension of a named slice, which several containers share."""

from __future__ import annotations

import os
import sys
from unittest import mock

import pytest

from support.softgpu_host import PRELUDE
from support.suspended import CLIENT, MIB, Node, answer_of, node
from vcuda_hook.cli import main
from vcuda_hook.suspend import control
from vcuda_hook.suspend.targets import refuse_unfit
from vcuda_oci.ledger import unhealthy
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import kernel_tables

__all__ = ["node"]


def test_claim_is_suspended_by_order_with_all_that_map_its_page(node: Node) -> None:
    node.box("claim@1", 1)
    mine = node.record("claim@1")
    with node.ledger:
        node.ledger.record(mine.replaced(runtime=[], container_id="", pod={"name": "p"}))
    before = node.used()
    page = f"{node.ledger.containers}/claim@1/usage"
    maps = "import mmap\npage = mmap.mmap(os.open(sys.argv[2], os.O_RDWR), 4096)\n"
    program = [sys.executable, "-c", PRELUDE + maps + CLIENT, str(64 * MIB), page]
    user = node.boxes[0].start_program(program)
    node.boxes[0].processes.append(user)
    answer_of(user)
    for id, by in (("claim@1", "idle"), ("claim@1", "rotation"), ("dra@1", "rotation")):
        with pytest.raises(VcudaError, match="which several containers may share"):
            refuse_unfit(node.record("claim@1").replaced(id=id), node.facts, by)
    # A claim's own idle time counts.
    refuse_unfit(node.record("claim@1").replaced(id="dra@1"), node.facts, "idle")
    with (
        mock.patch.object(kernel_tables, "_MOST_MAPS_BYTES", 100),
        pytest.raises(VcudaError, match="too many mappings to tell whether it uses the slice"),
    ):
        control.suspend(node.ledger, node.facts, "claim@1")
    assert node.used() > before
    assert node.vcuda("suspend", "claim@1").returncode == 0
    assert (node.used(), node.step("claim@1")) == (before, "suspended")
    assert node.vcuda("resume", "claim@1").returncode == 0
    assert node.boxes[0].works(user)


@pytest.mark.parametrize("verb", ["drain 0 --yes", "undrain 0", "rebalance --core 50 --yes"])
def test_only_root_drains_and_rebalances(
    node: Node, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main.main(["--config", node.config, *verb.split()]) == 1
    name = verb.split()[0]
    assert capsys.readouterr().err == f"vcuda: vcuda {name}: needs root; run it as root\n"
    assert not os.path.exists(unhealthy.drained_in(node.ledger.state_dir))


@pytest.mark.parametrize("verb", ["suspend", "resume", "move --gpu 1"])
def test_only_root_suspends_and_resumes(
    node: Node, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    box = node.box("box", 1)
    if verb == "resume":
        assert node.vcuda("suspend", "box").returncode == 0
    before = node.step("box")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main.main(["--config", node.config, *verb.split(), "box"]) == 1
    name = verb.split()[0]
    assert capsys.readouterr().err == f"vcuda: vcuda {name}: needs root; run it as root\n"
    monkeypatch.undo()
    assert node.step("box") == before
    page = f"{node.ledger.containers}/box/limits"
    for path in (page, node.ledger.allocations, f"{node.ledger.containers}/box/suspend.lock"):
        if os.path.exists(path):
            assert os.stat(path).st_uid == 0
            assert not os.stat(path).st_mode & 0o022, path
    if verb == "resume":
        assert node.vcuda("resume", "box").returncode == 0
    assert box.all_work()
