"""Claims that the agent prepares by DRA, with a fake kubelet and a fake API server."""

from __future__ import annotations

import os

import pytest

from support.api_server.fake_api_objects import CLAIMS
from support.api_server.fake_api_server import status
from support.kubelet.dra_claims import NODE, SPACE, claim, result
from support.kubelet.dra_node import DraNode
from support.ledger.samples import GIB
from support.waiting import until


def test_the_answer_names_request_pool_device_and_cdi_device(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        mine = dra.allocate("a", dra.uuids()[0])
        (device,) = dra.kubelet.prepare(mine)["a"].devices
        assert list(device.request_names) == ["gpu"]
        assert (device.pool_name, device.device_name) == (NODE, dra.devices()[0]["name"])
        assert (list(device.cdi_device_ids), device.share_id) == (["vcuda.io/claim=a"], "5a3c")
        assert dra.held() == ["dra@a"]


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("no claim", "cannot be read: 404 "),
        ("another claim", "has the uid other, not a; "),
        ("no API", "cannot be read: 503 "),
        ("a path", "'../../pods/x' is not a name"),
    ],
)
def test_a_claim_that_cannot_be_trusted_is_refused(dra: DraNode, case: str, error: str) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        mine = dra.allocate("a", dra.uuids()[0])
        if case == "no claim":
            dra.api.delete(f"{SPACE}/claim-a", CLAIMS)
        elif case == "another claim":
            dra.api.set(CLAIMS, f"{SPACE}/claim-a", claim("other", result(dra.uuids()[0])))
        elif case == "no API":
            dra.api.before = lambda method, path, _: (
                status(503, "away") if "resourceclaims" in path else None
            )
        else:
            mine = (SPACE, "../../pods/x", "a")
        answer = dra.kubelet.prepare(mine)["a"]
        assert error in answer.error
        assert (list(answer.devices), dra.held()) == ([], [])


def test_claim_says_in_its_status_what_its_containers_got(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        uuid = dra.uuids()[0]
        mine = dra.allocate("a", uuid)
        assert dra.kubelet.prepare(mine)["a"].error == ""
        until(lambda: bool(dra.status("a").get("devices")))
        (device,) = dra.status("a")["devices"]
        (condition,) = device["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "Ready",
            "True",
            "Prepared",
        )
        assert condition["message"] == f"30 % of the time and 4096 MiB of {uuid} on node {NODE}"
        assert device["data"] == {
            "uuid": uuid,
            "cores": 30,
            "memoryBytes": 4 * GIB,
            "node": NODE,
        }
        (place,) = dra.status("a")["allocation"]["devices"]["results"]
        assert {key: device[key] for key in ("driver", "pool", "device", "shareID")} == {
            key: place[key] for key in ("driver", "pool", "device", "shareID")
        }
        # The kubelet repeats its call: nothing more is written.
        count = len([1 for method, path, _ in dra.api.requests if path.endswith("/status")])
        assert dra.kubelet.prepare(mine)["a"].error == ""
        other = dra.allocate("b", uuid)
        assert dra.kubelet.prepare(other)["b"].error == ""
        until(lambda: bool(dra.status("b").get("devices")))
        assert [path for _, path, _ in dra.api.requests if path.endswith("/status")][count:] == [
            f"/apis/resource.k8s.io/v1/namespaces/{SPACE}/resourceclaims/claim-b/status"
        ]


def test_status_that_cannot_be_written_delays_no_claim(dra: DraNode) -> None:
    dra.api.before = lambda method, path, _: status(403, "no") if path.endswith("/status") else None
    with dra.agent() as agent:
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        for uid in ("a", "b"):
            assert dra.kubelet.prepare(dra.allocate(uid, dra.uuids()[0]))[uid].error == ""
        line = f"vcuda-node-agent: status of claim {SPACE}/claim-a: 403 no"
        until(lambda: line in agent.log())
        assert dra.held() == ["dra@a", "dra@b"]


def test_one_refused_claim_does_not_stop_the_others(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        good = dra.allocate("a", dra.uuids()[0])
        answers = dra.kubelet.prepare((SPACE, "claim-b", "b"), good)
        assert (answers["a"].error, answers["b"].error != "") == ("", True)
        assert dra.held() == ["dra@a"]


def test_claim_that_the_node_authorizer_refuses_at_first_is_prepared_later(dra: DraNode) -> None:
    dra.api.relation_seconds = 1.5
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        mine = dra.allocate("a", dra.uuids()[0])
        refused = dra.kubelet.prepare(mine)["a"].error
        assert "no relationship found between node" in refused
        assert (dra.held(), os.path.isdir(dra.cdi) and os.listdir(dra.cdi)) == ([], False)
        until(lambda: dra.kubelet.prepare(mine)["a"].error == "")
        assert dra.held() == ["dra@a"]
        until(lambda: bool(dra.status("a").get("devices")))


def test_many_health_streams_hold_up_no_claim(dra: DraNode) -> None:
    with dra.agent():
        dra.kubelet.register()
        until(lambda: len(dra.devices()) == 2)
        streams = [dra.kubelet.watch_health() for _ in range(20)]
        mine = dra.allocate("a", dra.uuids()[0])
        assert dra.kubelet.prepare(mine)["a"].error == ""
        assert next(streams[-1]).devices
