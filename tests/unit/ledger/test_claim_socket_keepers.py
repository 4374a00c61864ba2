"""When the claim socket starts its keepers again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vcuda_oci.fences import mps_folder
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.start import claim_socket
from vcuda_oci.start.claim_socket import MPS_KEEPER, ClaimServer


def fails(server: int) -> None:
    raise RuntimeError("a fault that the keeper does not know")


def ends(server: int) -> None:
    pass  # no container is under MPS any more


@pytest.mark.parametrize(("work", "is_restarted"), [(fails, False), (ends, True)])
def test_mps_keeper_that_fails_is_restarted_after_a_pause(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[int], None],
    is_restarted: bool,
) -> None:
    server = object.__new__(ClaimServer)
    server._ledger, server._keepers, server._keepers_due = Ledger(str(tmp_path)), {}, {}
    monkeypatch.setattr(server, "_keep_mps", work)
    monkeypatch.setattr(mps_folder, "folders", lambda _: ["one"])

    def run() -> bool:
        server._run_keeper(MPS_KEEPER)
        found = server._keepers.get(MPS_KEEPER, 0)
        if found:
            os.waitid(os.P_PID, found, os.WEXITED | os.WNOWAIT)
        return bool(found)

    assert run()
    assert run() == is_restarted
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + claim_socket._LOOK_AROUND_S + 1)
    assert run()
    os.waitpid(server._keepers[MPS_KEEPER], 0)
