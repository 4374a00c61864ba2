"""Create pods in a row, run inside the private host.

``python -m cluster.feed KUBECONFIG FILE WINDOW``. FILE: a JSON list of pods, of which at most
WINDOW have not ended at a time. Prints a line of JSON for each pod that has ended, {"pod", "phase",
"uid"}, and for each claim once it is allocated, {"claim", "device"}: the name of the pod that owns
the claim, and the device.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from cluster.inside import DEFAULT_PODS
from vcuda_plugin.kube.api import KubeApi

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SECONDS = 3600
ENDED = ("Succeeded", "Failed")


class Feed:
    def __init__(self, api: KubeApi, pods: list[dict[str, Any]], window: int) -> None:
        self._api, self._pods, self._left = api, pods, threading.Semaphore(window)
        self._printing, self._told = threading.Lock(), set[tuple[str, ...]]()
        self._count = len(pods)

    def run(self) -> None:
        for task in (self._create, self._follow_claims):
            threading.Thread(target=task, daemon=True).start()
        ended = 0
        while ended < self._count:
            for _, pod in self._api.watch(DEFAULT_PODS, {}, SECONDS):
                name, phase = pod["metadata"]["name"], pod["status"].get("phase")
                uid = pod["metadata"]["uid"]
                if phase in ENDED and self._tell(pod=name, phase=phase, uid=uid):
                    self._left.release()
                    ended += 1
                    if ended == self._count:
                        break

    def _create(self) -> None:
        for pod in self._pods:
            self._left.acquire()
            self._api.create(DEFAULT_PODS, pod)

    def _follow_claims(self) -> None:
        while True:
            for kind, claim in self._api.watch(CLAIMS, {}, SECONDS):
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


def main(kubeconfig: str, file: str, window: str) -> None:
    with open(file) as text:
        pods = json.load(text)
    Feed(KubeApi(kubeconfig, "tests"), pods, int(window)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
