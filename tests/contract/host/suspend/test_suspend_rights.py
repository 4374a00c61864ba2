"""Rights to suspend, and the suspension of a named slice, which several containers share."""

from __future__ import annotations

import os

import pytest

from support.suspend.suspended import Node, node
from vcuda_hook.cli import main
from vcuda_oci.ledger import unhealthy

__all__ = ["node"]


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
