"""Look up single pods in the API: those that a runtime wrapper misses when it creates a container.

The wrapper sends a datagram with the pod's namespace and name to <state-dir>/pods.sock, which only
root can open, and waits for the pod's record in the decisions folder. It makes no call of the API.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable
from typing import Any

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files

from ...kube.api import ApiError, KubeApi

READ_SECONDS = 2  # the limit on waiting look-ups while one hangs
_MOST_BYTES = 1024
# Source: Kubernetes, "Object Names and IDs", RFC 1123 label and subdomain.
_NAMES = re.compile(r"([a-z0-9][-a-z0-9]{0,62})\0([a-z0-9][-.a-z0-9]{0,252})")

_log = logging.getLogger(__name__)


def run(kubeconfig: str, state_dir: str, node: str, add: Callable[[Any], None]) -> None:
    """Runs until the process ends. add: takes each pod of this node that was found."""
    try:
        listening = _listen(f"{state_dir}/{names.POD_LOOKUP}")
    except OSError as error:
        _log.warning("%s/%s: cannot listen: %s", state_dir, names.POD_LOOKUP, error.strerror)
        return
    api: KubeApi | None = None
    while True:
        asked = _NAMES.fullmatch(listening.recv(_MOST_BYTES).decode(errors="replace"))
        if not asked:
            continue
        namespace, name = asked.groups()
        try:
            api = api or KubeApi(kubeconfig, names.AGENT_PROGRAM)
            for pod in find(api, namespace, name, node):
                add(pod)
        except (ApiError, VcudaError) as error:
            api = None  # its certificates may have been renewed
            _log.warning("pod %s/%s: cannot be looked up: %s", namespace, name, error)


def find(api: KubeApi, namespace: str, name: str, node: str) -> list[Any]:
    """The pod of this name if it is bound to `node`. Raises ApiError.

    Lists with selectors, so that it needs no right beyond those of the watch.
    """
    query = {"fieldSelector": f"metadata.name={name},spec.nodeName={node}"}
    tree = api.get(f"/api/v1/namespaces/{namespace}/pods", query, READ_SECONDS)
    found = tree.get("items") if isinstance(tree, dict) else None
    if not isinstance(found, list):
        raise ApiError(0, "not a list of pods")
    return [pod for pod in found if isinstance(pod, dict) and isinstance(pod.get("metadata"), dict)]


def _listen(path: str) -> socket.socket:
    """Raises OSError."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    beside = path + ".new"
    files.remove(beside)
    listening.bind(beside)
    os.chmod(beside, 0o600)
    os.rename(beside, path)
    return listening
