"""The program that creates claim templates, with a fake API server."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import Iterator
from typing import Any

from support.api_server.fake_api_objects import CLAIMS, PODS, SLICES, TEMPLATES
from support.api_server.fake_api_server import FakeApiServer, status
from support.scheduler import extender
from support.scheduler.extender import log
from support.waiting import until
from vcuda_plugin.extender.claims.maker import LABEL

NAME = "vcuda.core-30.memory-4"


def pod(name: str, template: str = NAME, *, claimed: bool = False) -> dict[str, Any]:
    """As the admission policy leaves it."""
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    claims = [
        {"name": "own", "resourceClaimTemplateName": "mine"},
        {"name": "vcuda-main", "resourceClaimTemplateName": template},
    ]
    has = [{"name": "vcuda-main", "resourceClaimName": "x"}] if claimed else []
    return {
        "metadata": {**metadata, "labels": {LABEL: "from-resources"}},
        "spec": {"resourceClaims": claims, "containers": [{"name": "main"}]},
        "status": {"resourceClaimStatuses": has},
    }


@contextlib.contextmanager
def maker(api: FakeApiServer, folder: Any) -> Iterator[Any]:
    config = f"{folder}/config.toml"
    with open(config, "w") as file:
        file.write('gpu-resource = "nvidia.com/gpu"\n')
    words = ["--config", config, "--kubeconfig", api.kubeconfig(f"{folder}/kubeconfig")]
    with extender.process(folder, "claim-templates", *words) as started:
        yield started


def test_each_template_is_created_once_and_owned_by_a_pod_that_waits(tmp_path: Any) -> None:
    api = FakeApiServer()
    with api.running():
        api.put(pod("has-one", "vcuda.core-10.memory-1", claimed=True), pod("first"))
        with maker(api, tmp_path):
            until(lambda: list(api.objects[TEMPLATES]) == [f"team/{NAME}"])
            api.put(pod("second"), pod("third", "vcuda.core-100"))
            until(lambda: len(api.objects[TEMPLATES]) == 2)
            made = api.objects[TEMPLATES][f"team/{NAME}"]
            (owner,) = made["metadata"]["ownerReferences"]
            assert owner == {"apiVersion": "v1", "kind": "Pod", "name": "first", "uid": "uid-first"}
            # As Kubernetes does with the owner's end: the second still has no claim.
            api.delete("team/first")
            api.put(pod("later", "vcuda.core-300"))
            until(lambda: "team/vcuda.core-300" in api.objects[TEMPLATES])
            api.delete(f"team/{NAME}", TEMPLATES)
            until(lambda: f"team/{NAME}" in api.objects[TEMPLATES])
            again = api.objects[TEMPLATES][f"team/{NAME}"]
            assert again["metadata"]["ownerReferences"][0]["name"] == "second"
            # With its claim it needs none.
            api.put(pod("second", claimed=True), pod("fourth", "vcuda.core-200"))
            until(lambda: "team/vcuda.core-200" in api.objects[TEMPLATES])
            api.delete(f"team/{NAME}", TEMPLATES)
            api.put(pod("fifth", "vcuda.core-400"))
            until(lambda: "team/vcuda.core-400" in api.objects[TEMPLATES])
            assert f"team/{NAME}" not in api.objects[TEMPLATES]
    posted = [each for each in api.requests if each[0] == "POST"]
    assert len(posted) == 6


def test_template_removed_before_its_makers_answer_came_is_created_again(tmp_path: Any) -> None:
    """The watch is faster than the answer, and brings a removal that is newer than it."""
    api, removed = FakeApiServer(), []

    async def remove() -> None:
        api.delete(f"team/{NAME}", TEMPLATES)
        removed.append(NAME)
        await asyncio.sleep(0.5)

    def applied(method: str, path: str) -> Any:
        is_it = method == "POST" and path.endswith("resourceclaimtemplates") and not removed
        return remove() if is_it else None

    api.applied = applied
    with api.running():
        api.put(pod("first"))
        with maker(api, tmp_path):
            until(
                lambda: bool(removed) and list(api.objects[TEMPLATES]) == [f"team/{NAME}"],
                seconds=10,
            )


def test_maker_killed_at_its_call_creates_nothing_twice(tmp_path: Any) -> None:
    api = FakeApiServer()

    def kill(method: str, path: str, body: Any) -> Any:
        if method == "POST" and "resourceclaimtemplates" in path:
            started.send_signal(signal.SIGKILL)
            return "drop after"
        return None

    with api.running():
        api.put(pod("first"), pod("second"))
        api.before = kill
        with maker(api, tmp_path) as started:
            started.wait(30)
        api.before = lambda *_: None
        assert list(api.objects[TEMPLATES]) == [f"team/{NAME}"]
        with maker(api, tmp_path):
            api.put(pod("third", "vcuda.core-100"))
            until(lambda: len(api.objects[TEMPLATES]) == 2)
    made = [path for method, path, _ in api.requests if method == "POST"]
    assert len(made) == 2


def test_invalid_amounts_are_said_once_and_hold_no_other_pod_up(tmp_path: Any) -> None:
    api = FakeApiServer()
    with api.running():
        api.put(pod("wrong", "vcuda.memory-4"), pod("first"))
        with maker(api, tmp_path):
            until(lambda: list(api.objects[TEMPLATES]) == [f"team/{NAME}"])
            api.put(pod("second", "vcuda.core-100"))
            until(lambda: len(api.objects[TEMPLATES]) == 2)
    (event,) = api.recorded_events.values()
    assert (event["reason"], event["involvedObject"]["name"]) == ("ClaimTemplateRefused", "wrong")
    assert "vcuda-memory without tencent.com/vcuda-core" in event["message"]


def test_refused_template_is_tried_again_and_holds_no_other_up(tmp_path: Any) -> None:
    api = FakeApiServer()
    refused = []

    def refuse(method: str, path: str, body: Any) -> Any:
        if method == "POST" and body["metadata"].get("name") == NAME:
            refused.append(path)
            return status(403, "exceeded quota: claims")
        return None

    api.before = refuse
    with api.running():
        api.put(pod("first"), pod("second", "vcuda.core-100"))
        with maker(api, tmp_path):
            until(lambda: list(api.objects[TEMPLATES]) == ["team/vcuda.core-100"])
            until(lambda: "exceeded quota: claims; trying again" in log(tmp_path))
            # The next pause is of a second or more.
            until(lambda: len(refused) == 2)
            api.put(pod("third", "vcuda.core-200"))
            until(lambda: "team/vcuda.core-200" in api.objects[TEMPLATES])
            assert len(refused) == 2
            api.before = lambda *_: None
            until(lambda: len(api.objects[TEMPLATES]) == 3)
    assert api.recorded_events == {}


def test_percentage_waits_until_a_gpu_is_known(tmp_path: Any) -> None:
    api = FakeApiServer()
    with api.running():
        api.put(pod("first", "vcuda.core-25"))
        with maker(api, tmp_path):
            until(lambda: "no ResourceSlice of gpu.vcuda.io has a GPU" in log(tmp_path))
            devices = [{"capacity": {"memory": {"value": "16Gi"}}}]
            spec = {"driver": "gpu.vcuda.io", "devices": devices}
            api.set(SLICES, "a", {"metadata": {"name": "a"}, "spec": spec})
            until(lambda: len(api.objects[TEMPLATES]) == 1)
    (made,) = api.objects[TEMPLATES].values()
    (request,) = made["spec"]["spec"]["devices"]["requests"]
    (only,) = request["firstAvailable"]
    assert only["capacity"]["requests"] == {"cores": "25", "memory": "4096Mi"}


def test_maker_ends_at_once_with_sigterm(tmp_path: Any) -> None:
    api = FakeApiServer()
    with api.running():
        api.put(pod("first"))
        with maker(api, tmp_path) as started:
            until(lambda: len(api.objects[TEMPLATES]) == 1)
            started.send_signal(signal.SIGTERM)
            assert started.wait(10) == 0
    paths = {re.sub(r"namespaces/team/", "", path) for _, path, _ in api.requests}
    assert paths == {PODS, TEMPLATES}
    assert CLAIMS not in paths
