"""Free capacity of every GPU of the cluster, as arrays: a row is a node, a column one of its GPUs.

The arrays are exact for one share of one GPU and for whole GPUs. They answer for a thousand nodes
in the time in which `placement.choose` answers for ten. `choose` still decides which GPU is used.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Part
from vcuda_oci.placement.rules import Rules

from .pod_request import Wanted

Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]

# A node with more GPUs is kept out of the arrays, because each column widens every row.
WIDEST = 32
_LEAST_CORE = -10_000


class GpuArrays:
    """The arrays by name, and the row of each node.

    core: free percent. memory: bytes that one more container can get. size: bytes of the GPU.
    there: the GPU may be used. untouched: no pod holds any of the GPU.
    """

    def __init__(self) -> None:
        self._width, self._height = 8, 64
        self._arrays: dict[str, NDArray[Any]] = {}
        self._shape()
        self._free_rows: list[int] = list(range(self._height - 1, -1, -1))
        self._models: dict[str, int] = {}
        self._places: dict[str, set[tuple[int, int]]] = {}
        self._uuids: dict[int, list[str]] = {}

    def add(self) -> int:
        """Reserve a row for one more node, without GPUs, and return its number."""
        if not self._free_rows:
            self._free_rows = list(range(2 * self._height - 1, self._height - 1, -1))
            self._height *= 2
            self._shape()
        return self._free_rows.pop()

    def remove(self, row: int) -> None:
        self.put_gpus(row, ())
        self._free_rows.append(row)

    def put_gpus(self, row: int, gpus: Sequence[Gpu]) -> None:
        """Replace the node's GPUs. Nothing of them is free until `put_free` is called."""
        if len(gpus) > self._width:
            self._width = min(WIDEST, max(len(gpus), 2 * self._width))
            self._shape()
        for column, uuid in enumerate(self._uuids.pop(row, [])):
            self._places[uuid].discard((row, column))
            if not self._places[uuid]:
                del self._places[uuid]
        for array in self._arrays.values():
            array[row] = 0
        self._uuids[row] = [gpu.uuid for gpu in gpus]
        for column, gpu in enumerate(gpus):
            self._places.setdefault(gpu.uuid, set()).add((row, column))
            self._arrays["model"][row, column] = self._models.setdefault(
                gpu.model, len(self._models)
            )
            self._arrays["size"][row, column] = gpu.memory_bytes
            self._arrays["there"][row, column] = True
            self._arrays["mig"][row, column] = gpu.mig is not None

    def put_free(
        self,
        row: int,
        gpus: Sequence[Gpu],
        taken: Sequence[GpuShare],
        rules: Rules,
        closed: Collection[str],
    ) -> None:
        """Store what `taken` leaves of the node's GPUs, as `placement` counts it.

        taken: for each held GPU one share, with the sum of what pods hold of it. closed: UUIDs of
        GPUs with tenants that exclude a pod without matching labels.
        """
        core = {share.uuid: share.core_percent for share in taken}
        memory = {share.uuid: share.memory_bytes for share in taken}
        for column, gpu in enumerate(gpus):
            left = rules.promised(gpu) - memory.get(gpu.uuid, 0)
            percent = _LEAST_CORE if gpu.uuid in closed else 100 - core.get(gpu.uuid, 0)
            self._arrays["core"][row, column] = max(_LEAST_CORE, percent)
            self._arrays["memory"][row, column] = max(0, min(left, gpu.memory_bytes))
            self._arrays["untouched"][row, column] = gpu.uuid not in core

    def at(self, rows: Rows, name: str) -> NDArray[Any]:
        """Return the array `name` at these rows."""
        return self._arrays[name][rows]

    def allowed(self, rows: Rows, wanted: Wanted) -> Bools:
        """(rows, columns): the GPUs that a pod may use."""
        allowed: Bools = self.at(rows, "there")
        if wanted.models or wanted.not_models:
            right = [number for model, number in self._models.items() if wanted.allows_model(model)]
            allowed &= np.isin(self.at(rows, "model"), right)
        for uuids, value in ((wanted.uuids, True), (wanted.not_uuids, False)):
            if uuids:
                mask = np.full((self._height, self._width), not value)
                for uuid in uuids:
                    for place in self._places.get(uuid, ()):
                        mask[place] = value
                allowed &= mask[rows]
        return allowed

    def fit_share(self, rows: Rows, allowed: Bools, core: int, memory: int | None) -> Bools:
        """(rows, columns): the GPUs that have `core` percent, below 100, and `memory` bytes."""
        needed = self.needed(rows, core, memory)
        fits: Bools = (self.at(rows, "core") >= core) & (self.at(rows, "memory") >= needed)
        return fits & allowed

    def could_fit_share(self, rows: Rows, allowed: Bools, core: int, memory: int | None) -> Bools:
        """(rows): whether a GPU would have that much if no pod held any of it."""
        enough: Bools = self.at(rows, "size") >= self.needed(rows, core, memory)
        could: Bools = np.asarray((enough & allowed).any(axis=1))
        return could

    def fit_whole(self, rows: Rows, allowed: Bools, count: int, memory: int | None) -> Bools:
        """(rows): whether `count` wholly free GPUs have `memory` bytes in all."""
        return self.could_fit_whole(rows, allowed & self.at(rows, "untouched"), count, memory)

    def could_fit_whole(self, rows: Rows, allowed: Bools, count: int, memory: int | None) -> Bools:
        """(rows): whether they would if no pod held any of them."""
        if count > 1:  # several GPUs are never MIG devices: see vcuda_oci.placement.choose
            allowed = allowed & ~self.at(rows, "mig")
        enough: Bools = allowed.sum(axis=1) >= count
        if memory:
            sizes = np.sort(np.where(allowed, self.at(rows, "size"), 0), axis=1)
            enough &= sizes[:, -count:].sum(axis=1) >= memory
        return enough

    def surely_fit(self, rows: Rows, allowed: Bools, parts: Sequence[Part], apart: bool) -> Bools:
        """(rows): whether the parts fit however each is placed. They may fit on other nodes too.

        True where as many GPUs have room for the largest part as there are parts, or where one GPU
        has room for all parts and none has to be `apart`. Each part then has room, wherever the
        others were placed.
        """
        size, core, memory = (self.at(rows, name) for name in ("size", "core", "memory"))
        bytes_of = [part.memory_bytes or 0 for part in parts]
        percent_of = [_memory_percent(part) for part in parts]
        cores = [part.core for part in parts]
        room = allowed & ~self.at(rows, "mig")
        if max(cores) < 100:
            room &= core >= max(cores)
            room &= memory >= np.maximum(max(bytes_of), size * max(percent_of) // 100)
        else:
            room &= self.at(rows, "untouched") & (size >= max(bytes_of))
        surely: Bools = room.sum(axis=1) >= sum(-(-each // 100) for each in cores)
        if not apart and sum(cores) <= 100 and sum(percent_of) <= 100:
            needed = sum(bytes_of) + size * sum(percent_of) // 100
            surely |= ((core >= sum(cores)) & (memory >= needed) & allowed).any(axis=1)
        return surely

    def needed(self, rows: Rows, core: int, memory: int | None) -> NDArray[Any] | int:
        """Return the bytes that a share of `core` percent needs of each GPU."""
        if memory is not None:
            return memory
        needed: NDArray[Any] = self.at(rows, "size") * core // 100
        return needed

    def _shape(self) -> None:
        """Resize the arrays to `_height` and `_width`, and keep their content."""
        kinds: dict[str, Any] = {"core": np.int32, "memory": np.int64, "size": np.int64}
        kinds |= {"model": np.int32, "there": np.bool_, "untouched": np.bool_, "mig": np.bool_}
        for name, kind in kinds.items():
            grown = np.zeros((self._height, self._width), kind)
            if name in self._arrays:
                old = self._arrays[name]
                grown[: old.shape[0], : old.shape[1]] = old
            self._arrays[name] = grown


def _memory_percent(part: Part) -> int:
    """Return the part's percent of a GPU's memory; 0 where the part names bytes."""
    if part.memory_bytes is not None:
        return 0
    return part.core if part.memory_percent is None else part.memory_percent
