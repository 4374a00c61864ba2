"""Write this node's GPUs on the node object: an annotation for the scheduler, and labels.

After a Lease that was renewed too late, they are written with that moment: kube-scheduler follows
no Lease, and would leave the pods that the extender refused meanwhile for minutes.

Each time they are written, a line WRITTEN goes to standard output. An empty line of input is a
heartbeat of the agent: the node's Lease is renewed (vcuda_plugin.kube.agent_lease).
"""

from __future__ import annotations

import json
import logging
import os
import select
import time
from typing import Any

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError

from ...kube import agent_lease
from ...kube.api import MERGE_PATCH, ApiError, KubeApi, message_of
from ...kube.retry import Retry

WRITTEN = "written"
# A node that was deleted and joined again has lost its annotations.
_AGAIN_SECONDS = 300.0

_log = logging.getLogger(__name__)


def run(kubeconfig: str, node: str, source: int, namespace: str) -> None:
    """Merge the newest line of the descriptor `source`, JSON, into the node's metadata until it
    ends, and repeat that from time to time. namespace: of the Lease; "": there is none.
    """
    writer = _Writer(kubeconfig, node, namespace)
    line, beginning = b"", b""
    while True:
        whole: list[bytes] = []
        if select.select([source], [], [], max(0.0, writer.due - time.monotonic()))[0]:
            part = os.read(source, 1 << 16)
            if not part:
                return
            *whole, beginning = (beginning + part).split(b"\n")
            if news := [each for each in whole if each]:
                line = news[-1]
                writer.due = 0.0
        if line and time.monotonic() >= writer.due:
            writer.write(json.loads(line))
        if b"" in whole:
            writer.renew()


class _Writer:
    """due: when the node's metadata is to be written (monotonic). back: when the Lease was last
    renewed too late (seconds since 1970); 0: never.
    """

    back = 0

    def __init__(self, kubeconfig: str, node: str, namespace: str) -> None:
        self._kubeconfig, self._node, self._namespace = kubeconfig, node, namespace
        self._uid, self._renewed = "", time.monotonic()
        self._api: KubeApi | None = None
        self._retry, self._lease_retry = Retry(_log.warning), Retry(_log.warning)
        self.due = time.monotonic() + _AGAIN_SECONDS

    def write(self, metadata: dict[str, Any]) -> None:
        gpus = metadata.get("annotations", {}).get(names.ANNOTATION_NODE_GPUS)
        if self.back and gpus:
            dated = json.dumps({**json.loads(gpus), "back": self.back}, separators=(",", ":"))
            metadata["annotations"][names.ANNOTATION_NODE_GPUS] = dated
        path = f"/api/v1/nodes/{self._node}"
        try:
            api = KubeApi(self._kubeconfig, names.AGENT_PROGRAM)
            status, answer = api.call("PATCH", path, {"metadata": metadata}, kind=MERGE_PATCH)
            if status >= 400:
                raise ApiError(status, f"{status} {message_of(answer)}")
            self._uid = str(answer["metadata"].get("uid", ""))
            print(WRITTEN, flush=True)
            self._retry.forget()
            pause = _AGAIN_SECONDS
        except (ApiError, VcudaError) as error:
            pause = self._retry.after(f"GPUs of node {self._node}: {error}; trying again")
        self.due = time.monotonic() + pause

    def renew(self) -> None:
        """Renew the Lease; the next heartbeat tries again after an error."""
        if not self._namespace:
            return
        try:
            self._api = self._api or KubeApi(self._kubeconfig, names.AGENT_PROGRAM)
            agent_lease.renew(self._api, self._namespace, self._node, self._uid)
            self._lease_retry.forget()
            now = time.monotonic()
            if now - self._renewed > agent_lease.LEASE_SECONDS:
                self.back, self.due = int(time.time()), 0.0
            self._renewed = now
        except (ApiError, VcudaError) as error:
            self._api = None  # read the token and the certificates again
            self._lease_retry.after(f"Lease of node {self._node}: {error}; trying again")
