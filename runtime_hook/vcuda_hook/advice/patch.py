"""Commands to paste that give a workload its recommended share: pure."""

from __future__ import annotations

import json
import shlex
from typing import Any

from vcuda_oci.model import names

from .recommend import Advice
from .workload import CONTAINER, Workload

# Kinds with a template of pods that may be changed, and where it is.
_TEMPLATE = ("spec", "template", "spec")
_TEMPLATES = {
    "Deployment": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", *_TEMPLATE),
}
_MIB = 1 << 20


def of(workload: Workload, advice: Advice, core_resource: str, memory_resource: str) -> str:
    """The command or options; "": nothing is recommended, or its kind cannot be patched.

    core_resource, memory_resource: the settings; "": not offered.
    """
    if workload.kind == CONTAINER:  # options of `docker run` and `podman run`
        values = {names.ENV_PREFIX + key.upper(): value for key, value in figures(advice).items()}
        return " ".join(f"-e {key}={value}" for key, value in values.items())
    path = _TEMPLATES.get(workload.kind)
    amounts = {}
    if advice.core_percent is not None and core_resource:
        amounts[core_resource] = str(advice.core_percent)
    if advice.memory_bytes is not None and memory_resource:
        units = -(-advice.memory_bytes // names.MEMORY_UNIT_BYTES)
        amounts[memory_resource] = str(units)
    if path is None or not amounts:
        return ""
    # Requests of extended resources equal their limits. Source: Kubernetes, "Extended resources".
    resources = {"limits": amounts, "requests": amounts}
    patch: Any = {"containers": [{"name": workload.container, "resources": resources}]}
    for key in reversed(path):
        patch = {key: patch}
    text = json.dumps(patch, separators=(",", ":"))
    words = ("kubectl", "--namespace", workload.namespace, "patch", workload.kind.lower())
    return shlex.join((*words, workload.name, "--patch", text))


def limit(name: str, advice: Advice) -> str:
    """The command that changes a running container; "": nothing is recommended."""
    options = [word for key, value in figures(advice).items() for word in (f"--{key}", value)]
    return shlex.join(["vcuda", "limit", name, *options]) if options else ""


def figures(advice: Advice) -> dict[str, str]:
    """What is recommended, by the keys of a request and as its values are written."""
    found = {}
    if advice.core_percent is not None:
        found["core"] = str(advice.core_percent)
    if advice.memory_bytes is not None:
        found["memory"] = f"{-(-advice.memory_bytes // _MIB)}MiB"
    return found
