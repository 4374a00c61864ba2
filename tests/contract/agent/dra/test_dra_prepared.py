"""Prepared claims: record and CDI spec, called twice, out of order, and killed at any write."""

from __future__ import annotations

import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from support.api_server.fake_api_objects import CLAIMS
from support.api_server.fake_api_server import FakeApiServer
from support.cdi_schema import SCHEMA
from support.files import write
from support.gpu.driver_root import DriverRoot
from support.gpu.mig_node import MigNode
from support.kubelet.dra_claims import NODE, SPACE, claim, parameters, result
from support.ledger.faults import killed_at
from support.ledger.samples import GIB, left_in
from vcuda_hook.cli import main
from vcuda_hook.live import slices
from vcuda_hook.why import kubectl
from vcuda_oci.host.mig import Mig
from vcuda_oci.ledger import liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.policies import Terms
from vcuda_oci.model.request import Request
from vcuda_oci.pages import page_reader
from vcuda_oci.placement import mig
from vcuda_oci.start import apply_share, left_over
from vcuda_plugin.agent.dra import dra_process, prepared
from vcuda_plugin.agent.dra.claim_request import ClaimRequest
from vcuda_plugin.agent.dra.prepared import PreparedClaims
from vcuda_plugin.kube.api import ApiError, KubeApi

UID = "0a1b-2c3d"
ONE = claim(UID, result("GPU-0"))


class Node:
    """A node with two GPUs of 16 GiB. cdi: the folder of specs."""

    def __init__(self, folder: Path) -> None:
        self.driver = DriverRoot(f"{folder}/driver", count=2)
        self.ledger = Ledger(f"{folder}/state")
        self.cdi = f"{folder}/cdi"
        self.settings = write(
            f"{folder}/config.toml",
            f'driver-root = "{folder}/driver"\nstate-dir = "{folder}/state"\n',
        )
        self.claims = PreparedClaims(self.settings, self.cdi, NODE)

    def spec(self, uid: str = UID) -> dict[str, Any]:
        with open(f"{self.cdi}/vcuda.io-claim_{uid}.json") as file:
            tree: dict[str, Any] = json.load(file)
        jsonschema.validate(tree, SCHEMA)
        return tree

    def specs(self) -> list[str]:
        return sorted(os.listdir(self.cdi)) if os.path.isdir(self.cdi) else []

    def held(self) -> dict[str, list[GpuShare]]:
        allocations, broken = self.ledger.read()
        assert broken == []
        return {held.id: held.shares for held in allocations}

    def is_empty(self) -> bool:
        with self.ledger:
            self.ledger.sweep(liveness.is_alive)
        return left_in(self.ledger.state_dir) == ["host.json"] and self.specs() == []


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(apply_share, "SHIM", write(f"{tmp_path}/lib/libvcuda.so.1", ""))
    return Node(tmp_path)


def test_a_claim_becomes_a_record_of_its_pod_with_its_policy(node: Node) -> None:
    config = [parameters(policy="elastic", coreLimit=80, priority=3)]
    _, device = node.claims.prepare(claim(UID, result("GPU-1"), config=config), UID)
    assert device == f"vcuda.io/claim={UID}"
    assert node.held() == {f"dra@{UID}": [GpuShare("GPU-1", 4 * GIB, 30, "elastic", 80, 30, 3)]}
    (record,) = node.ledger.read()[0]
    assert record.pod == {
        "uid": f"uid-{UID}", "namespace": "default", "name": f"pod-{UID}",
        "container": f"claim-{UID}", "sandbox_id": "",
    }  # fmt: skip
    with open(f"{node.ledger.containers}/dra@{UID}/limits", "rb") as file:
        (gpu,) = page_reader.read_limits(file.read()).gpus
    assert (gpu.uuid, gpu.memory_bytes) == ("GPU-1", 4 * GIB)


@pytest.mark.parametrize("cores", [(100, 50), (5, 5), (100, 100)])
def test_two_requests_are_one_record_with_both_gpus(node: Node, cores: tuple[int, int]) -> None:
    both = [
        result(f"GPU-{at}", core, "16Gi" if core == 100 else "1Gi", request=f"r{at}")
        for at, core in enumerate(cores)
    ]
    wanted, _ = node.claims.prepare(claim(UID, *both), UID)
    assert [each.request for each in wanted.results] == ["r0", "r1"]
    (shares,) = node.held().values()
    assert [(share.uuid, share.core_percent) for share in shares] == [
        ("GPU-0", cores[0]),
        ("GPU-1", cores[1]),
    ]
    assert node.claims.prepare(claim(UID, *both), UID)[0] == wanted


def test_a_claim_that_was_allocated_anew_waits_for_its_release(node: Node) -> None:
    node.claims.prepare(ONE, UID)
    with pytest.raises(VcudaError, match="holds other GPUs than are allocated now"):
        node.claims.prepare(claim(UID, result("GPU-1")), UID)
    node.claims.unprepare(UID)
    node.claims.prepare(claim(UID, result("GPU-1")), UID)
    assert [share.uuid for (share,) in node.held().values()] == ["GPU-1"]


def test_instance_of_another_place_or_isolation_is_of_an_earlier_allocation(
    tmp_path: Path,
) -> None:
    node = MigNode(tmp_path)
    held, (gpu,) = node.claim("dra@a", 10), node.gpus
    ((_, profile, start),) = node.instances().values()
    with Mig(node.library) as driver:
        places = mig.all_places(driver.layout(gpu))

    def check(place: mig.Place | None, isolation: str) -> None:
        request = Request.of(10, terms=Terms(isolation=isolation))
        wanted = ClaimRequest([], [GpuShare(gpu, GIB, 14)], request, "", "", place)
        prepared._check_same(node.ledger, held, wanted, node.facts())

    for place in places:
        if (place.profile.id, place.start) == (profile, start):
            check(place, "mig")
            continue
        with pytest.raises(VcudaError, match="has a GPU instance at another place"):
            check(place, "mig")
    for isolation in ("", "mps"):
        with pytest.raises(VcudaError, match="has another isolation than is allocated now"):
            check(None, isolation)


def test_the_device_has_the_edits_of_a_named_slice(node: Node, capsys: Any) -> None:
    words = ["generate", "--output", "-", "--slice", "one=core:30,memory:4GiB,gpu:0"]
    assert main.main(["--config", node.settings, "cdi", *words]) == 0
    named = json.loads(capsys.readouterr().out)
    node.claims.prepare(claim(UID, result("GPU-0", 30)), UID)
    tree = node.spec()
    (device,) = tree["devices"]
    assert (tree["kind"], device["name"]) == ("vcuda.io/claim", UID)
    (one,) = [each for each in named["devices"] if each["name"] == "one"]

    def all_of(spec: Any, each: Any, key: str) -> list[Any]:
        both = spec["containerEdits"].get(key, []) + each["containerEdits"].get(key, [])
        text = json.dumps(sorted(both, key=json.dumps))
        found: list[Any] = json.loads(text.replace("cdi@one", f"dra@{UID}"))
        return found

    for key in ("deviceNodes", "mounts"):
        assert all_of(tree, device, key) == all_of(named, one, key)
    for key in ("env", "hooks"):
        assert tree["containerEdits"][key] == named["containerEdits"][key]


def test_an_agent_in_a_pod_names_the_nodes_files(node: Node) -> None:
    PreparedClaims(node.settings, node.cdi, NODE, "/").prepare(ONE, UID)
    tree = node.spec()
    both = (tree["containerEdits"], tree["devices"][0]["containerEdits"])
    sources = [each["hostPath"] for edits in both for key in ("deviceNodes", "mounts")
               for each in edits[key]]  # fmt: skip
    assert "/dev/nvidia0" in sources
    assert [path for path in sources if path.startswith(node.driver.path)] == []


def test_repeated_calls_change_nothing(node: Node) -> None:
    first = node.claims.prepare(ONE, UID)
    before = (node.held(), node.spec(), os.stat(f"{node.ledger.containers}/dra@{UID}").st_ino)
    assert node.claims.prepare(ONE, UID) == first
    page = f"{node.ledger.containers}/dra@{UID}"
    assert (node.held(), node.spec(), os.stat(page).st_ino) == before
    for _ in range(3):
        node.claims.unprepare(UID)
        assert (node.held(), node.specs()) == ({}, [])
    assert node.is_empty()


def test_unprepare_before_prepare_is_right(node: Node) -> None:
    node.claims.unprepare(UID)
    node.claims.prepare(ONE, UID)
    assert list(node.held()) == [f"dra@{UID}"]


def test_a_gpu_that_is_full_refuses_the_claim_with_nothing_left(node: Node) -> None:
    node.claims.prepare(claim("a", result("GPU-0", 60, "6Gi")), "a")
    with pytest.raises(VcudaError, match=r"^claim default/claim-b: GPU-0 was decided; ") as error:
        node.claims.prepare(claim("b", result("GPU-0", 60, "6Gi")), "b")
    assert "free" in str(error.value) or "fits" in str(error.value)
    assert list(node.held()) == ["dra@a"]
    assert node.specs() == ["vcuda.io-claim_a.json"]


def test_refused_claim_is_one_event_with_amounts_however_often_repeated(
    node: Node, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.claims.prepare(claim("a", result("GPU-0", 60, "6Gi")), "a")
    for _ in range(3):
        with pytest.raises(VcudaError):
            node.claims.prepare(claim("b", result("GPU-0", 60, "6Gi")), "b")
    monkeypatch.setattr(kubectl.shutil, "which", lambda name: None)  # type: ignore[attr-defined]
    assert main.main(["--config", node.settings, "why", f"{SPACE}/pod-b", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (reason,), (event,) = answer["reasons"], answer["events"]
    assert (reason["kind"], event["pod"]) == ("refused", f"{SPACE}/pod-b/claim-b")
    amounts = "largest free share is 40 % and 10 GiB on GPU-0; 60 % and 6 GiB asked"
    assert amounts in reason["what"].replace(".0 GiB", " GiB")


def test_a_spec_that_cannot_be_written_leaves_no_record(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(node.cdi, "in the way")

    def fail(_: Ledger) -> None:
        raise VcudaError("cannot be asked", "NVML", "try again")

    monkeypatch.setattr(left_over, "destroy_released", fail)
    with pytest.raises(VcudaError, match="cannot be written"):
        node.claims.prepare(ONE, UID)
    assert node.held() == {}
    assert "NVML: cannot be asked; try again" in caplog.text


@pytest.mark.parametrize("uid", ["", "../x", "a/b", "-", "a" * 65, "a\n"])
def test_a_uid_that_is_no_file_name_is_refused(node: Node, uid: str) -> None:
    for call in (lambda: node.claims.prepare(claim(uid, result("GPU-0")), uid),
                 lambda: node.claims.unprepare(uid)):  # fmt: skip
        with pytest.raises(VcudaError, match="is not a uid"):
            call()
    assert node.held() == {}


def test_a_claim_is_no_named_slice_for_the_commands(node: Node, capsys: Any) -> None:
    node.claims.prepare(ONE, UID)
    assert slices.all_of(node.ledger) == []
    assert main.main(["--config", node.settings, "release", f"dra@{UID}"]) == 1
    assert "is a claim that the kubelet has prepared" in capsys.readouterr().err
    assert main.main(["--config", node.settings, "ps"]) == 0
    assert f"default/pod-{UID}/claim-{UID}  0    30 %" in capsys.readouterr().out
    with node.ledger:
        assert node.ledger.sweep(liveness.is_alive) == []


def test_kills_at_any_change_lose_and_leak_nothing(node: Node) -> None:
    at = 1
    while killed_at(at, lambda: node.claims.prepare(ONE, UID)):
        if f"vcuda.io-claim_{UID}.json" in node.specs():
            assert list(node.held()) == [f"dra@{UID}"]
        if at % 2:  # the kubelet tries again, or the pod is deleted meanwhile
            node.claims.prepare(ONE, UID)
            assert (list(node.held()), node.spec()["kind"]) == ([f"dra@{UID}"], "vcuda.io/claim")
        node.claims.unprepare(UID)
        assert node.is_empty(), at
        at += 1
    assert at > 15
    stop = 1
    node.claims.prepare(ONE, UID)
    while killed_at(stop, lambda: node.claims.unprepare(UID)):
        if f"vcuda.io-claim_{UID}.json" in node.specs():
            assert list(node.held()) == [f"dra@{UID}"]
        node.claims.unprepare(UID)
        assert node.is_empty(), stop
        node.claims.prepare(ONE, UID)
        stop += 1
    assert stop > 3


def test_calls_in_any_order_end_with_what_was_called_last(node: Node) -> None:
    order, last = random.Random(7), {}
    trees = {
        str(number): claim(str(number), result(f"GPU-{number % 2}", 20, "2Gi"))
        for number in range(8)
    }
    for _ in range(120):
        uid = order.choice(list(trees))
        last[uid] = order.random() < 0.6
        if last[uid]:
            node.claims.prepare(trees[uid], uid)
        else:
            node.claims.unprepare(uid)
    kept = sorted(uid for uid, is_prepared in last.items() if is_prepared)
    assert sorted(node.held()) == [f"dra@{uid}" for uid in kept]
    assert node.specs() == [f"vcuda.io-claim_{uid}.json" for uid in kept]


def test_claims_that_the_api_lost_are_released_and_others_stay(node: Node, tmp_path: Path) -> None:
    lock = threading.Lock()
    with FakeApiServer().running() as server:
        api = KubeApi(server.kubeconfig(tmp_path / "kubeconfig"), "test")
        for uid in ("a", "b", "c"):
            node.claims.prepare(claim(uid, result("GPU-0", 20, "2Gi")), uid)
        node.ledger.remove("dra@c")  # as a kill during an unprepare leaves it
        server.set(CLAIMS, "default/claim-a", claim("a", result("GPU-0")))
        server.set(CLAIMS, "default/claim-b", {**claim("new"), "kind": "ResourceClaim"})
        # The node authorizer refuses both that exist, and says nothing of their end.
        server.relation_seconds = 3600.0
        assert dra_process.forget_ended(api, node.claims, lock) == ["c"]
        server.relation_seconds = 0.0
        node.claims.prepare(claim("c", result("GPU-0", 20, "2Gi")), "c")
        node.ledger.remove("dra@c")
        assert sorted(dra_process.forget_ended(api, node.claims, lock)) == ["b", "c"]
        assert list(node.held()) == ["dra@a"]
        # The server is away, or does not know this kind of object.
        for refusal in (503, 404):
            server.refuse = refusal
            with pytest.raises(ApiError):
                dra_process.forget_ended(api, node.claims, lock)
    assert list(node.held()) == ["dra@a"]
