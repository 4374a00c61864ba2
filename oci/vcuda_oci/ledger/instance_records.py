"""The records of GPU instances that containers hold; fences/instances.py explains their life."""

from __future__ import annotations

import os

from ..model import jsontree, names
from ..model.allocation import GpuShare
from ..model.errors import VcudaError
from ..model.gpu import Gpu
from ..model.record import Record
from ..system import files
from .ledger import Ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = names.INSTANCES
# Instances of a static layout, which no container holds (vcuda_hook/mig).
STATIC = f"{FOLDER}/{names.STATIC}"
SUFFIX = ".json"


class Held(Record):
    """The record of one instance.

    gpu: UUID. profile, start, width: where it stands. before: UUIDs of the GPU's MIG devices before
    it. library: path of NVML. uuid: of its MIG device; "": it is not known whether it exists.
    ending: its compute instance may be destroyed.
    """

    def __init__(
        self,
        id: str,
        gpu: str,
        profile: int,
        start: int,
        width: int,
        before: Sequence[str],
        library: str,
        uuid: str = "",
        ending: bool = False,
    ) -> None:
        self.id, self.gpu, self.library, self.uuid = id, gpu, library, uuid
        self.profile, self.start, self.width, self.ending = profile, start, width, ending
        self.before = tuple(before)


def read(state_dir: str, folder: str = FOLDER) -> list[Held]:
    """Every record of the folder; [] where nothing ever had an instance.

    Raises VcudaError: a record is not whole, so it is not known what may be destroyed.
    """
    folder, found = f"{state_dir}/{folder}", []
    try:
        found_names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in found_names:
        if not name.endswith(SUFFIX):
            continue
        try:
            fields = jsontree.loads(files.read_ours(f"{folder}/{name}", 1 << 16))
            found.append(_checked(Held(id=name[: -len(SUFFIX)], **fields)))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError) as error:
            hint = "see 'nvidia-smi mig -lgi', destroy what is left over, and remove the file"
            what = f"is not a whole record ({error})"
            raise VcudaError(what, f"{folder}/{name}", hint) from error
    return found


def _checked(held: Held) -> Held:
    """Raises TypeError."""
    texts = held.gpu, held.library, held.uuid, *held.before
    numbers = held.profile, held.start, held.width
    if not all(type(text) is str for text in texts) or any(type(at) is not int for at in numbers):
        raise TypeError("a field has another type")
    return held


def killed(state_dir: str) -> list[Held]:
    """The records of a static layout's instances of which it is not known whether they exist."""
    return [held for held in read(state_dir, STATIC) if not held.uuid]


def write(state_dir: str, held: Held, folder: str = FOLDER) -> None:
    """Raises VcudaError: the state folder cannot be written."""
    path = f"{state_dir}/{folder}/{held.id}{SUFFIX}"
    fields = held.fields()
    del fields["id"]
    fields["before"] = list(held.before)
    try:
        files.replace(path, jsontree.dumps(fields).encode(), 0o600)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise VcudaError(what, path, "free space there, or set state-dir") from error


def remove(state_dir: str, id: str, folder: str = FOLDER) -> None:
    files.remove(f"{state_dir}/{folder}/{id}{SUFFIX}")


def taken(state_dir: str, gpus: Sequence[Gpu], known: Sequence[GpuShare]) -> list[GpuShare]:
    """The MIG devices that are about to be one container's alone, or were, as shares taken whole.

    known: the shares of allocations.
    """
    own = {gpu.uuid for held in read(state_dir) for gpu in gpus if _is_of(gpu, held)}
    own -= {share.uuid for share in known}
    return [GpuShare(gpu.uuid, gpu.memory_bytes, 100) for gpu in gpus if gpu.uuid in own]


def _is_of(gpu: Gpu, held: Held) -> bool:
    if held.uuid:
        return gpu.uuid == held.uuid
    return gpu.parent == held.gpu and gpu.uuid not in held.before


def stale(ledger: Ledger) -> list[Held]:
    """The records without an allocation: released, or never written. Raises VcudaError.

    Costs one look at a folder where no container has an instance.
    """
    return [
        held
        for held in read(ledger.state_dir)
        if not os.path.exists(f"{ledger.allocations}/{held.id}{SUFFIX}")
    ]
