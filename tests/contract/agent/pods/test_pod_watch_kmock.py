"""The pods' follower at another fake API server: kmock, which knows less than ours.

It pages nothing, ignores selectors and begins each watch with every object. A client that only
relies on the API's rules gets along with that too.
"""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kmock
import pytest
from kubernetes import client, config

from support.kubelet.watched_pods import CORE, MEMORY, NODE, WatchedPods, decision_annotations

FIRST, LATER = str(uuid.uuid4()), str(uuid.uuid4())
SHARE = {"containers": {"main": [{"uuid": "GPU-1", "core_percent": 30, "memory_bytes": 1 << 30}]}}


class Kmock:
    """A thread of its own, as long as the block lasts."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    async def _serve(self) -> None:
        async with kmock.KubernetesEmulator() as api_server, kmock.Server(api_server) as server:
            api_server.resources["v1/pods"] = {"namespaced": True}
            self.url = str(server.url)
            self._listens.set()
            await self._over.wait()

    def __enter__(self) -> Kmock:
        self._thread.start()
        assert self._listens.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[str]:
    with Kmock() as api_server:
        path = tmp_path / "kubeconfig-of-kmock"
        there = {"name": "kmock", "cluster": {"server": api_server.url}}
        used = {"name": "kmock", "context": {"cluster": "kmock", "user": "kmock"}}
        user = {"name": "kmock", "user": {}}
        words = {"clusters": [there], "contexts": [used], "users": [user]}
        path.write_text(json.dumps({**words, "current-context": "kmock"}))
        yield str(path)


def test_decisions_are_stored_with_a_minimal_api_server(kubeconfig: str, pods: WatchedPods) -> None:
    api = client.CoreV1Api(config.new_client_from_config(kubeconfig))
    api.create_namespaced_pod(
        "default", pod("first", FIRST, decision_annotations(main=("GPU-1", 30, 1 << 30)))
    )
    pods.kubeconfig = kubeconfig
    pods.follow()
    assert pods.decisions() == {FIRST: SHARE}
    api.create_namespaced_pod("default", pod("later", LATER, {}))
    pods.await_decisions(FIRST, LATER)
    api.delete_namespaced_pod("first", "default")
    pods.await_decisions(LATER)


def test_event_without_a_version_ends_only_the_watch(kubeconfig: str, pods: WatchedPods) -> None:
    api = client.CoreV1Api(config.new_client_from_config(kubeconfig))
    pods.kubeconfig = kubeconfig
    pods.follow()
    spoilt = pod("spoilt", FIRST, {})
    del spoilt["metadata"]["resourceVersion"]
    api.create_namespaced_pod("default", spoilt)
    pods.await_decisions(FIRST)
    assert pods.process is not None and pods.process.poll() is None
    assert any("not an event of an object" in line for line in pods.log())


def pod(name: str, uid: str, annotations: dict[str, str]) -> Any:
    limits = {CORE: "30", MEMORY: "4"}
    return {
        "metadata": {
            **{"name": name, "uid": uid, "namespace": "default"},
            **{"annotations": annotations, "resourceVersion": "1"},
        },
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": "main", "resources": {"limits": limits}}],
        },
    }
