"""What a claim under MPS refuses, and how placement keeps MPS and turns apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.ledger.samples import GIB, record
from vcuda_oci.container.identity import Owner
from vcuda_oci.fences import mps_claim, mps_folder
from vcuda_oci.fences.mps_folder import Ready
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import claim, decision_file, liveness
from vcuda_oci.ledger.claim import Claim
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import fence, policies
from vcuda_oci.model.errors import NotKnownYetError, VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Request
from vcuda_oci.pages import layout, limits, page_reader
from vcuda_oci.placement import eligible
from vcuda_oci.placement.rules import Rules


def wanted(isolation: str = "") -> Claim:
    return Claim(Owner("box", "box"), Request.of(30, 4 * GIB), [], 1, isolation=isolation)


@pytest.mark.parametrize(
    ("held", "asked", "why"),
    [
        ("", "mps", eligible.TURNS_THERE),
        ("mps", "", eligible.MPS_THERE),
        ("", "", None),
        ("mps", "mps", None),
    ],
)
def test_gpu_of_containers_of_the_other_kind_is_barred(
    held: str, asked: str, why: str | None
) -> None:
    found = claim._of_others([record(isolation=held)], wanted(asked), [], ())
    assert found == ({"GPU-0": why} if why else {})


def test_mig_devices_are_barred_under_mps_alone() -> None:
    part = Gpu("MIG-0", 0, 0, 16 * GIB, "Soft", "0000:00:00.0", parent="GPU-0", mig=[0, 1, 0])
    assert claim._of_others([], wanted("mps"), [part], ()) == {"MIG-0": eligible.IS_PART}
    assert claim._of_others([], wanted(), [part], ()) == {}


def test_refusal_names_the_isolation_and_not_the_gpus_health() -> None:
    gpu = Gpu("GPU-0", 0, 0, 16 * GIB, "Soft", "0000:00:00.0")
    barred = eligible.barred([gpu], 30, (), {"GPU-0": eligible.TURNS_THERE})
    why, hint = eligible.refusal(barred)
    assert why == "GPU-0: its containers take turns"
    assert hint == "use the isolation that they have, or another GPU"


def test_limits_page_has_the_percentage_only_under_mps() -> None:
    pages = [limits.page_of(record(isolation=isolation)) for isolation in ("", "mps")]
    at = next(at for name, at, _ in layout.offsets() if name == "limits_gpu.mps_percent")
    assert [page[layout.LIMITS_HEAD_SIZE + at] for page in pages] == [0, 30]
    assert page_reader.read_limits(pages[1]).gpus[0].core_percent == 30


def test_isolation_shim_is_refused_with_the_word_to_use() -> None:
    with pytest.raises(VcudaError, match="isolation 'shim' is not offered; use turns"):
        policies.isolation_of("shim", "env")


def test_line_of_mps_says_what_a_fault_ends() -> None:
    word, line = fence.of("mps", 30, None)
    assert (word, "every container under MPS" in line.split("; ")[1]) == ("mps", True)


def test_state_folder_with_a_path_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VcudaError, match="at most 107 bytes; set a shorter state-dir"):
        mps_folder.want(f"{tmp_path}/{'x' * 80}", "GPU-12345678-9", "/usr/bin/x", "/usr/lib", "")


def test_ready_daemon_counts_only_while_both_processes_live(tmp_path: Path) -> None:
    own = [os.getpid(), liveness.start_time(os.getpid())]
    for server, found in ((own, True), ([own[0], own[1] + 1], False)):
        mps_folder.write_ready(str(tmp_path), Ready(own, server, []))
        assert (mps_folder.ready(str(tmp_path)) is not None) == found


def test_claim_without_a_daemon_keeps_no_worker_of_the_claim_socket_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_file, "may_hold", False)
    ledger, held = Ledger(str(tmp_path)), record(isolation="mps")
    host = Host("", "", "", [])
    with pytest.raises(NotKnownYetError):
        mps_claim.wait(ledger, host, held)
    # The caller's own process asks for it.
    assert mps_folder.folders(ledger.state_dir) == []


def test_request_is_refused_before_a_daemon_is_asked_for() -> None:
    request = Request.of(30, 4 * GIB).replaced(terms=policies.Terms(latency="low"))
    owner = Owner("box", "box", "uid", "ns", "pod", "main")
    with pytest.raises(VcudaError, match="isolation mps: latency means nothing"):
        mps_claim.claim_mps(
            Ledger("/nowhere"), Host("", "", "", []), Claim(owner, request, [], 1), Rules()
        )


def test_pod_that_restarts_keeps_its_share_under_mps(tmp_path: Path) -> None:
    ledger, owner = Ledger(str(tmp_path)), Owner("box", "box", "uid", "ns", "pod", "main")
    host = Host("", "", "", [Gpu("GPU-0", 0, 0, 16 * GIB, "Soft", "0000:00:00.0")])
    first = Claim(owner, Request.of(30, 4 * GIB), ["/bin/false"], 1, isolation="mps")
    with ledger:
        assert claim.reclaim(ledger, host, first, Rules()) is None
    held, _ = claim.claim(ledger, host, first, Rules())
    again = first.replaced(isolation="", claimant=os.getpid())  # before its annotations are read
    with ledger:
        kept = claim.reclaim(ledger, host, again, Rules())
    assert kept is not None
    assert (kept.isolation, kept.shares) == ("mps", held.shares)


def test_file_that_is_removed_while_the_servers_files_are_listed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mps_folder, "SHARED", str(tmp_path))
    (tmp_path / "cuda.shm.0.7.1").write_text("")
    monkeypatch.setattr(os, "listdir", lambda _: ["cuda.shm.0.7.0", "cuda.shm.0.7.1"])
    assert mps_folder.shared_of(7) == ["cuda.shm.0.7.1"]
