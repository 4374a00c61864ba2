"""Write this node's GPUs on the node object: an annotation for the scheduler, and labels.

Each time they are written, a line WRITTEN goes to standard output.
"""

from __future__ import annotations

import json
import logging
import os
import select

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError

from ...kube.api import ApiError, KubeApi
from ...kube.retry import Retry

WRITTEN = "written"
# A node that was deleted and joined again has lost its annotations.
_AGAIN_SECONDS = 300.0

_log = logging.getLogger(__name__)


def run(kubeconfig: str, node: str, source: int) -> None:
    """Merge the newest line of the descriptor `source`, JSON, into the node's metadata until it
    ends, and repeat that from time to time.
    """
    retry, pause = Retry(_log.warning), _AGAIN_SECONDS
    line, beginning = b"", b""
    while True:
        if select.select([source], [], [], pause)[0]:
            part = os.read(source, 1 << 16)
            if not part:
                return
            *whole, beginning = (beginning + part).split(b"\n")
            if not whole:
                continue
            line = whole[-1]
        if not line:
            continue
        try:
            patch = {"metadata": json.loads(line)}
            KubeApi(kubeconfig, names.AGENT_PROGRAM).merge(f"/api/v1/nodes/{node}", patch)
            print(WRITTEN, flush=True)
            retry.forget()
            pause = _AGAIN_SECONDS
        except (ApiError, VcudaError) as error:
            pause = retry.after(f"GPUs of node {node}: {error}; trying again")
