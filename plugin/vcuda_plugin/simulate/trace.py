"""Read and write a trace of pods: JSON lines, or CSV with a heading; a line is a pod."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.sizes import parse_bytes

from ..extender.model.pod_request import ask_of
from . import openb
from .rows import MOST_SECONDS, check_keys, number, rows
from .rows import read as read_lines
from .trace_pod import COLUMNS, SETTINGS, TracePod

_MOST = 1 << 31


class Trace(NamedTuple):
    """pods: in the order of arrival. without_gpu: how many were left out as they request no GPU."""

    pods: list[TracePod]
    without_gpu: int = 0


def read(path: str) -> Trace:
    """Read a file. Raises VcudaError, with the line."""
    return parse(read_lines(path), path)


def parse(lines: Iterable[str], path: str) -> Trace:
    """Read lines of our format or of the public trace. Raises VcudaError, with the line."""
    pods: list[TracePod] = []
    without_gpu = 0
    line_of: dict[str, int] = {}
    for line, fields in rows(lines, path, "name", ", ".join(COLUMNS)):
        where, columns = f"{path}:{line}", COLUMNS
        try:
            if fields.keys() & openb.OWN:
                columns = openb.POD_COLUMNS
                pod = openb.pod(fields)
            else:
                pod = _pod(fields)
            if pod:
                ask_of(pod.as_object(), SETTINGS)
        except ValueError as error:
            raise VcudaError(str(error), where, f"write {', '.join(columns)}") from error
        except VcudaError as error:
            raise VcudaError(error.what, where, error.hint) from error
        if pod is None:
            without_gpu += 1
            continue
        if pod.name in line_of:
            what = f"a second pod '{pod.name}'"
            hint = f"name it otherwise: the first is in line {line_of[pod.name]}"
            raise VcudaError(what, where, hint)
        line_of[pod.name] = line
        pods.append(pod)
    if not pods:
        raise VcudaError("no pods in it", path, "write JSON lines, or CSV with a heading")
    return Trace(sorted(pods, key=lambda pod: pod.arrival), without_gpu)


def dump(pods: Iterable[TracePod]) -> Iterator[str]:
    """Yield the lines that `parse` reads."""
    plain = TracePod("")
    for pod in pods:
        fields = {key: value for key, value in asdict(pod).items() if value != getattr(plain, key)}
        yield json.dumps(fields) + "\n"


def _pod(fields: dict[str, Any]) -> TracePod:
    """Read a pod of our format. Raises ValueError."""
    check_keys(fields, COLUMNS)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("no name")
    found: dict[str, Any] = {"name": name}
    for key in ("arrival", "duration"):
        if key in fields:
            found[key] = number(fields, key, float, 0, MOST_SECONDS)
    for key, least in (("core", 1), ("count", 1), ("priority", -_MOST)):
        if key in fields:
            found[key] = number(fields, key, int, least, _MOST)
    if "memory" in fields:
        found["memory"] = parse_bytes(str(fields["memory"]))
        if not found["memory"]:
            raise ValueError(f"memory '{str(fields['memory'])[:40]}' is not a size such as 4GiB")
    for key in ("model", "namespace"):
        if key in fields:
            found[key] = str(fields[key])
    pod = TracePod(**found)
    if pod.count > 1 and pod.core > 100:
        raise ValueError(f"core {pod.core} of each of {pod.count} GPUs")
    return pod
