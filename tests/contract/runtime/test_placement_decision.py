"""Decision files on the node: kills, bounded waits, and the cost for other containers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from contract.runtime.start_path.test_start_path import FORBIDDEN, SHOW, run
from support.files import write
from support.gpu.driver_root import DriverRoot
from support.ledger.faults import killed_at
from support.ledger.samples import GIB, host, pod_owner, shares_of
from support.wrapper.fake_runtime import FakeRuntime
from support.wrapper.installed_wrapper import Installed
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger import decision_file
from vcuda_oci.ledger.claim import Claim, claim
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import NotKnownYetError, VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.placement.rules import Rules
from vcuda_oci.start import apply_share
from vcuda_plugin.agent.pods.decision_folder import DecisionFolder

UID = "01234567-89ab-4def-8123-456789abcdef"
OLD = Decision({"main": [GpuShare("GPU-0", GIB, 30)]}, {"policy": "elastic"}, ["init"])
NEW = Decision({"main": [GpuShare("GPU-1", GIB, 30)]})
POD = pod_owner("c1")


def settings(folder: Any, decisions: str = "preferred") -> Any:
    return SimpleNamespace(state_dir=str(folder), decisions=decisions)


def kept(folder: Any) -> Any:
    return decision_file.decision_for(POD, settings(folder)).__dict__


def test_a_kill_at_any_moment_leaves_the_old_record_or_the_new_one(tmp_path: Any) -> None:
    folder = DecisionFolder(str(tmp_path))
    changes = 0
    while True:
        folder.put("uid1", OLD)
        killed = killed_at(changes + 1, lambda: folder.put("uid1", NEW))
        assert repr(kept(tmp_path)) in (repr(OLD.__dict__), repr(NEW.__dict__))
        folder.retain_only(["uid1"])
        assert os.listdir(folder.path) == ["uid1.json"]
        if not killed:
            break
        changes += 1
    assert (changes >= 4, repr(kept(tmp_path))) == (True, repr(NEW.__dict__))


def test_container_of_a_pod_unknown_to_the_agent_is_refused_after_a_wait(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_file, "HOLD_SECONDS", 0.1)
    DecisionFolder(str(tmp_path))
    for decisions in ("preferred", "required"):
        with pytest.raises(VcudaError) as refused:
            decision_file.decision_for(POD, settings(tmp_path, decisions))
        assert str(refused.value).startswith("pod default/web: the node agent does not know this")


def test_process_that_serves_others_leaves_a_long_wait_to_its_caller(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_file, "may_hold", False)
    DecisionFolder(str(tmp_path))
    with pytest.raises(VcudaError) as given_up:
        kept(tmp_path)
    assert type(given_up.value) is NotKnownYetError


@pytest.mark.parametrize("uid", ["0123456789abcdef0123456789abcdef", "uid1"])
def test_static_pods_and_unwatched_nodes_have_no_decisions(tmp_path: Any, uid: str) -> None:
    if uid != "uid1":
        DecisionFolder(str(tmp_path))
    owner = Owner("key", "c1", uid, "default", "web", "main", "sandbox1")
    assert decision_file.decision_for(owner, settings(tmp_path)).__dict__ == Decision().__dict__


def test_the_agent_is_asked_for_the_one_pod_with_a_missing_record(tmp_path: Any) -> None:
    folder = DecisionFolder(str(tmp_path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(f"{tmp_path}/pods.sock")

        def answer() -> None:
            assert agent.recv(1024) == b"default\0web"
            folder.put("uid1", NEW)

        answering = threading.Thread(target=answer)
        answering.start()
        assert repr(kept(tmp_path)) == repr(NEW.__dict__)
        answering.join()


def test_record_written_meanwhile_is_found_at_once(tmp_path: Any) -> None:
    folder = DecisionFolder(str(tmp_path))
    comes = threading.Timer(0.2, lambda: folder.put("uid1", NEW))
    comes.start()
    assert repr(kept(tmp_path)) == repr(NEW.__dict__)
    comes.join()


def test_no_lookup_without_decision_files_or_a_pods_request(tmp_path: Any) -> None:
    assert not apply_share.may_be_decided(POD, settings(tmp_path))
    DecisionFolder(str(tmp_path))
    assert apply_share.may_be_decided(POD, settings(tmp_path))
    assert not apply_share.may_be_decided(POD, settings(tmp_path, "off"))
    assert not apply_share.may_be_decided(Owner("box", "box"), settings(tmp_path, "required"))


@pytest.mark.parametrize(
    ("content", "mode"), [("{", 0o644), (NEW.dump(), 0o666)], ids=["half", "writable by all"]
)
def test_a_record_that_is_none_is_refused_in_one_line(
    tmp_path: Any, content: str, mode: int
) -> None:
    path = write(f"{tmp_path}/decisions/uid1.json", content, mode)
    with pytest.raises(VcudaError) as refused:
        kept(tmp_path)
    assert str(refused.value).startswith(f"{path}: is not a decision (")
    assert str(refused.value).endswith("; remove it and restart vcuda-node-agent")


def test_init_containers_that_have_ended_leave_their_shares_to_the_others(tmp_path: Any) -> None:
    runtime, node = FakeRuntime(f"{tmp_path}/runc"), host(16)
    ledger, large = Ledger(f"{tmp_path}/state"), Request.of(80, GIB)
    runtime.set_state("sandbox1", "running")

    def claimed(name: str, decided: list[GpuShare]) -> list[GpuShare]:
        owner = pod_owner(f"c-{name}", name)
        wanted = Claim(owner, large, runtime.words, os.getpid(), decided, ["init", "next"])
        allocation, _ = claim(ledger, node, wanted, Rules())
        with ledger:
            allocation.claimant = [os.getpid(), 1]
            ledger.record(allocation)
        return allocation.shares

    share = [GpuShare("GPU-0", GIB, 80)]
    assert claimed("init", []) == share
    runtime.set_state("c-init", "running")
    with pytest.raises(VcudaError):
        claimed("next", share)
    runtime.set_state("c-init", "stopped")
    assert claimed("next", share) == claimed("main", share) == share
    assert shares_of(ledger) == {"pod-uid1.main": share}
    # A container that is no init container holds its share until the pod is deleted.
    with pytest.raises(VcudaError):
        claimed("other", share)


def test_a_decision_costs_the_start_two_small_imports_and_no_pod_none(tmp_path: Any) -> None:
    installed, driver = Installed(f"{tmp_path}/prefix"), DriverRoot(f"{tmp_path}/driver")
    state = f"{tmp_path}/state"
    installed.configure(runtime=installed.runtime.path, state_dir=state, driver_root=driver.path)
    annotations = {
        "vcuda.io/request.vcuda-core": "30",
        "vcuda.io/request.vcuda-memory": "4",
        "io.kubernetes.cri.sandbox-uid": UID,
        "io.kubernetes.cri.container-name": "main",
    }
    write(f"{tmp_path}/bundle/config.json", json.dumps({"annotations": annotations}))
    words = [installed.python_path, installed.settings, installed.runtime.path]
    words += ["create", "--bundle", f"{tmp_path}/bundle", "box"]
    run("/usr/bin/python3", SHOW, *words)  # the host's facts are cached
    without = set(json.loads(run("/usr/bin/python3", SHOW, *words)))
    DecisionFolder(state).put(UID, Decision(words={"policy": "best-effort"}))
    # With the pages: to replace one takes ctypes.
    subprocess.run(["rm", "-r", f"{state}/allocations", f"{state}/containers"], check=True)
    loaded = set(json.loads(run("/usr/bin/python3", SHOW, *words)))
    with open(f"{state}/allocations/pod-{UID}.main.json") as record:
        assert json.load(record)["shares"][0]["policy"] == "best-effort"
    assert loaded - without == {"vcuda_oci.ledger.decision_file", "vcuda_oci.ledger.decision"}
    assert loaded & FORBIDDEN == set()
