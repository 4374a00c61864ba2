"""A trace of pods: JSON lines, or CSV with a heading; a line is a pod."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vcuda_oci import config, names
from vcuda_oci.errors import VcudaError
from vcuda_oci.sizes import parse_bytes
from vcuda_plugin import pod_amounts
from vcuda_plugin.scheduler import annotations as known
from vcuda_plugin.scheduler.ask import ask_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WHOLE_GPU = "nvidia.com/gpu"
SETTINGS = config.parse(f'gpu-resource = "{_WHOLE_GPU}"', "the simulation")
_MOST_SECONDS = 1e12
_MOST = 1 << 31
_MIB = 1 << 20


@dataclass(frozen=True)
class TracePod:
    """core, memory: percent and bytes of each of `count` GPUs; of one, core may be above 100.

    memory None: as much as of compute. arrival, duration: seconds; None: it stays.
    priority: the higher waits the less. model: a part of its name; "": any.
    """

    name: str
    arrival: float = 0
    duration: float | None = None
    core: int = 100
    memory: int | None = None
    count: int = 1
    priority: int = 0
    model: str = ""

    @property
    def gpus(self) -> float:
        """How many GPUs' worth of compute it asks for."""
        return self.core * self.count / 100

    def as_object(self) -> dict[str, Any]:
        """As the API server writes it."""
        if self.count == 1 or self.core == 100:
            limits = {names.GPUMANAGER_CORE: self.core * self.count}
            if self.memory is not None and self.core != 100:
                blocks = math.ceil(self.memory / names.MEMORY_UNIT_BYTES)
                limits[names.GPUMANAGER_MEMORY] = blocks
        else:
            limits = {_WHOLE_GPU: self.count, _WHOLE_GPU + pod_amounts.HAMI_CORES: self.core}
            if self.memory is None:
                limits[_WHOLE_GPU + pod_amounts.HAMI_MEMORY_PERCENT] = self.core
            else:
                limits[_WHOLE_GPU + pod_amounts.HAMI_MEMORY] = math.ceil(self.memory / _MIB)
        said = {known.USE_MODEL[0]: self.model} if self.model else {}
        return {
            "metadata": {
                "name": self.name,
                "namespace": "trace",
                "uid": self.name,
                "annotations": said,
            },
            "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        }


COLUMNS = tuple(TracePod.__dataclass_fields__)


def read(path: str) -> list[TracePod]:
    """In the order of arrival. Raises VcudaError, with the line."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return parse(file, path)
    except OSError as error:
        raise VcudaError(f"cannot be read: {error.strerror}", path, "name a file") from error
    except UnicodeDecodeError as error:
        raise VcudaError("not UTF-8", path, "write JSON lines or CSV") from error


def parse(lines: Iterable[str], path: str) -> list[TracePod]:
    """Raises VcudaError, with the line."""
    pods: list[TracePod] = []
    line_of: dict[str, int] = {}
    for number, fields in _rows(lines, path):
        where = f"{path}:{number}"
        try:
            pod = _pod(fields)
            ask_of(pod.as_object(), SETTINGS)
        except ValueError as error:
            mend = f"a pod has {', '.join(COLUMNS)}"
            raise VcudaError(str(error), where, mend) from error
        except VcudaError as error:
            raise VcudaError(error.what, where, error.mend) from error
        if pod.name in line_of:
            what = f"a second pod '{pod.name}'"
            raise VcudaError(what, where, f"the first is in line {line_of[pod.name]}")
        line_of[pod.name] = number
        pods.append(pod)
    if not pods:
        raise VcudaError("no pods in it", path, "write JSON lines, or CSV with a heading")
    return sorted(pods, key=lambda pod: pod.arrival)


def dump(pods: Iterable[TracePod]) -> Iterator[str]:
    """The lines that `parse` reads."""
    plain = TracePod("")
    for pod in pods:
        said = {key: value for key, value in asdict(pod).items() if value != getattr(plain, key)}
        yield json.dumps(said) + "\n"


def _rows(lines: Iterable[str], path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The fields of each pod, and its line. An empty field is one left out."""
    heading: list[str] = []
    as_json = None
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        if as_json is None:
            as_json = line.lstrip().startswith("{")
        if as_json:
            yield number, _json(line, where)
            continue
        try:
            (cells,) = csv.reader([line], strict=True)
        except (csv.Error, ValueError) as error:
            raise VcudaError(f"not CSV: {error}", where, "a pod is one line") from error
        cells = [cell.strip() for cell in cells]
        if not heading:
            heading = cells
            if "name" not in heading or len(set(heading)) != len(heading):
                mend = f"begin with a heading, of {', '.join(COLUMNS)}"
                raise VcudaError("neither JSON nor a heading of CSV", where, mend)
            continue
        if len(cells) != len(heading):
            what = f"{len(cells)} fields below a heading of {len(heading)}"
            raise VcudaError(what, where, "write as many; one may be empty")
        yield number, {key: cell for key, cell in zip(heading, cells) if cell}


def _json(line: str, where: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise VcudaError(f"not JSON: {error}"[:200], where, "a pod is one line") from error
    if not isinstance(fields, dict):
        raise VcudaError("not a JSON object", where, "a pod is one object")
    return {key: value for key, value in fields.items() if value is not None}


def _pod(fields: dict[str, Any]) -> TracePod:
    """Raises ValueError."""
    for key in fields:
        if key not in COLUMNS:
            raise ValueError(f"unknown field '{key[:40]}'")
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("no name")
    found: dict[str, Any] = {"name": name}
    for key in ("arrival", "duration"):
        if key in fields:
            found[key] = _number(fields, key, float, 0, _MOST_SECONDS)
    for key, least in (("core", 1), ("count", 1), ("priority", -_MOST)):
        if key in fields:
            found[key] = _number(fields, key, int, least, _MOST)
    if "memory" in fields:
        found["memory"] = parse_bytes(str(fields["memory"]))
        if not found["memory"]:
            raise ValueError(f"memory '{str(fields['memory'])[:40]}' is no size such as 4GiB")
    if "model" in fields:
        found["model"] = str(fields["model"])
    pod = TracePod(**found)
    if pod.count > 1 and pod.core > 100:
        raise ValueError(f"core {pod.core} of each of {pod.count} GPUs")
    return pod


def _number(fields: dict[str, Any], key: str, kind: Any, least: float, most: float) -> Any:
    """Raises ValueError: not a number of that kind, from least to most."""
    said = fields[key]
    try:
        if isinstance(said, bool):
            raise ValueError
        value = kind(said)
        # A float in JSON that int would cut, and what is no number at all.
        if value != float(said) or not least <= value <= most:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{key} cannot be '{str(said)[:40]}'") from None
    return value
