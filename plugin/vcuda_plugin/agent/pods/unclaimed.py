"""Find containers that run without the share that the kubelet counts for them.

The device plugin allocates the share; the runtime wrapper gives it when the container is created.
A pod without the RuntimeClass runs on the plain runtime: it is counted, but gets no GPU. The record
of a container that has ended may be removed before the API shows the end: the event log still has
events of that container.
"""

from __future__ import annotations

import calendar
import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from vcuda_oci.container.identity import pod_key
from vcuda_oci.ledger import events
from vcuda_oci.system import files

from .pod_decision import PodDecision, listed, mapping

STATUSES = ("containerStatuses", "initContainerStatuses")
WHAT = "a container runs without the share of a GPU that it asks for"
HINT = "give the pod the RuntimeClass with the handler vcuda-container-runtime, and create it anew"


def containers(pod: Mapping[str, Any], found: PodDecision, state_dir: str) -> Iterator[str]:
    """Yield the names of such containers. Never raises: a malformed status yields nothing."""
    if mapping(pod.get("metadata")).get("deletionTimestamp"):
        return  # its record may be removed before its status changes
    for kind in STATUSES:
        for each in listed(mapping(pod.get("status")), kind):
            name = each.get("name")
            if isinstance(name, str) and name in found.containers and _runs_since_boot(each):
                record = f"{state_dir}/allocations/{pod_key(found.uid, name)}.json"
                if not os.path.exists(record) and not _had_share(each, state_dir):
                    yield name


def _had_share(status: Mapping[str, Any], state_dir: str) -> bool:
    """Return whether an event names the container: one that is refused does not run."""
    id = str(status.get("containerID") or "").rpartition("//")[2]
    # Searched, not parsed: the log has megabytes, and a pod may have many such containers.
    wanted = f'"container":"{id}"'.encode()
    for end in ("", ".1"):
        with contextlib.suppress(OSError):
            if id and wanted in files.read(f"{state_dir}/{events.NAME}{end}"):
                return True
    return False


def _runs_since_boot(status: Mapping[str, Any]) -> bool:
    """Return whether the status shows a running container that started after this host's boot."""
    running = mapping(mapping(status.get("state")).get("running"))
    try:
        started = time.strptime(str(running.get("startedAt")), "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return False
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return calendar.timegm(started) > boot
