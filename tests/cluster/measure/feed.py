"""Create pods in a row, run inside the private host.

``python -m cluster.measure.feed KUBECONFIG FILE WINDOW SECONDS``. FILE: a JSON list of pods, of
which at most WINDOW have not ended at a time; none is created after SECONDS. Prints a line of JSON
for each pod that has ended, {"pod", "phase", "uid"}, and for each claim once it is allocated,
{"claim", "device"}: the name of the pod that owns the claim, and the device.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from cluster.measure.inside import DEFAULT_PODS
from vcuda_plugin.kube.api import KubeApi

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
WATCH_SECONDS = 3600
ENDED = ("Succeeded", "Failed")


class Feed:
    def __init__(self, api: KubeApi, pods: list[dict[str, Any]], window: int) -> None:
        self._api, self._pods = api, pods
        self._room, self._ends = threading.Semaphore(window), threading.Semaphore(0)
        self._printing, self._told = threading.Lock(), set[tuple[str, ...]]()

    def run(self, seconds: float) -> None:
        """Return once every pod that was created has ended."""
        until = time.monotonic() + seconds
        for task in (self._follow_pods, self._follow_claims):
            threading.Thread(target=_or_end, args=(task,), daemon=True).start()
        created = 0
        for pod in self._pods:
            self._room.acquire()
            if time.monotonic() > until:
                break
            self._api.create(DEFAULT_PODS, pod)
            created += 1
        for _ in range(created):
            self._ends.acquire()

    def _follow_pods(self) -> None:
        while True:
            for _, pod in self._api.watch(DEFAULT_PODS, {}, WATCH_SECONDS):
                metadata, phase = pod["metadata"], pod["status"].get("phase")
                if phase in ENDED and self._tell(
                    pod=metadata["name"], phase=phase, uid=metadata["uid"]
                ):
                    self._room.release()
                    self._ends.release()

    def _follow_claims(self) -> None:
        while True:
            for kind, claim in self._api.watch(CLAIMS, {}, WATCH_SECONDS):
                found = (claim.get("status") or {}).get("allocation")
                if found and kind != "DELETED":
                    (owner,) = claim["metadata"]["ownerReferences"]
                    for result in found["devices"]["results"]:
                        self._tell(claim=owner["name"], device=result["device"])

    def _tell(self, **what: str) -> bool:
        """Print it, unless that was done before."""
        with self._printing:
            key = tuple(what.values())
            if key in self._told:
                return False
            self._told.add(key)
            print(json.dumps(what), flush=True)
            return True


def _or_end(task: Callable[[], None]) -> None:
    try:
        task()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(kubeconfig: str, file: str, window: str, seconds: str) -> None:
    with open(file) as text:
        pods = json.load(text)
    Feed(KubeApi(kubeconfig, "tests"), pods, int(window)).run(float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
