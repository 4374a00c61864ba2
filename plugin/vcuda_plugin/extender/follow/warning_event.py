"""Kubernetes Events of type Warning: why an object is not used, where its owner sees it."""

from __future__ import annotations

import logging
import time
from typing import Any

from vcuda_oci.model import names

from ...kube.api import ApiError, KubeApi, path_of

_MOST_CHARACTERS = 1000

_log = logging.getLogger(__name__)


def warn(api: KubeApi, kind: str, metadata: dict[str, Any], reason: str, text: str) -> None:
    """Write an Event about the object with this metadata; log why if that fails."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    namespace, name = metadata["namespace"], metadata["name"]
    keys = ("name", "namespace", "uid", "resourceVersion")
    about = {key: metadata[key] for key in keys if key in metadata}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}.", "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": kind, **about},
        "reason": reason,
        "message": text[:_MOST_CHARACTERS],
        "type": "Warning",
        "source": {"component": names.EXTENDER_PROGRAM},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        api.create(path_of("/api/v1", namespace, "events"), event)
    except ApiError as error:
        _log.warning("%s %s/%s: no event was written: %s", kind, namespace, name, error)
