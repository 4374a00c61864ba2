"""GPU instances that containers hold: created for one container, destroyed after it.

    <state>/instances/lock        held (flock) while instances are created or destroyed
    <state>/instances/<id>.json   the instance of allocation <id>, existing or about to be created
    <state>/instances/static      the same for a static layout's instances, which no sweep ends

A record is written before its instance exists, with the place that it will have, and again with the
UUID of its MIG device together with the allocation's record, under the ledger's lock. A release
removes the allocation's record only. An instance without an allocation is stale: the sweep destroys
it, the compute instance first, then removes its record. So a kill at any moment leaves a record of
what must be destroyed. Instances of other programs have no record here, and are not touched.

Ids are reused by the driver, UUIDs are not: once the UUID is recorded, only the instance with this
UUID is destroyed. Before that, only one at the recorded place and of the recorded profile: the
place was free when the record was written. A record of a static layout without a UUID is of a
creation that was killed: the next program that has the lock records the instance's UUID, or
destroys what exists of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..host import facts_cache, host
from ..host.host import Host
from ..host.mig import Instance, InUse, Mig
from ..ledger import instance_records
from ..ledger.instance_records import FOLDER, STATIC, Held
from ..ledger.ledger import Ledger
from ..model.allocation import GpuShare
from ..model.errors import VcudaError
from ..model.mig import Profile
from ..placement import mig as places
from ..placement.eligible import Refused
from ..system.own_lock import FolderLock

# Creation and destruction take some tenths of a second each, and others may be waiting too.
_LOCK_SECONDS = 120.0
# A killed process leaves its instance when the driver has cleaned up after it.
_IN_USE_SECONDS = 3.0
_PAUSE_SECONDS = 0.05


def lock(ledger: Ledger) -> FolderLock:
    """Held by the only process that creates or destroys instances."""
    return FolderLock(f"{ledger.state_dir}/{FOLDER}/lock", _LOCK_SECONDS)


def create(
    ledger: Ledger,
    facts: Host,
    id: str,
    core: int,
    memory_bytes: int,
    gpus: Sequence[str],
    place: places.Place | None = None,
) -> tuple[Held, GpuShare] | Refused:
    """Create an instance that holds `core` percent of a GPU and the memory. Needs the lock.

    id: of the allocation; it has no record here. gpus: UUIDs to choose from, in MIG mode. place:
    None: any on these. Returns the record, to be written with the allocation, and the share: all of
    the MIG device. Raises VcudaError: the driver refuses; at most the record is left, for the next
    sweep.
    """
    with Mig(facts.library) as driver:
        settle_static(ledger, driver)
        layouts = [driver.layout(uuid) for uuid in gpus]
        answer = places.at(layouts, place) if place else places.choose(layouts, core, memory_bytes)
        if isinstance(answer, Refused):
            return answer
        profile = answer.profile
        before = [gpu.uuid for gpu in facts.gpus if gpu.parent == answer.uuid]
        before += [one.uuid for one in driver.instances(answer.uuid) if one.uuid]
        held = Held(id, answer.uuid, profile.id, answer.start, profile.width, before, facts.library)
        held = make(ledger, driver, held, profile)
        return held, GpuShare(held.uuid, profile.memory_bytes, 100)


def make(ledger: Ledger, driver: Mig, held: Held, profile: Profile, folder: str = FOLDER) -> Held:
    """Create the instance that `held`, without a UUID, describes; return the record with its UUID,
    which is not written yet. Needs the lock. Raises VcudaError: nothing is left, or the record."""
    instance_records.write(ledger.state_dir, held, folder)
    try:
        driver.add_compute(driver.create(held.gpu, profile, held.start), profile)
        made = [one for one in driver.instances(held.gpu) if _is_at(one, held)]
        if not made or not made[0].uuid:
            raise VcudaError(
                f"{profile.name} of {held.gpu} has no MIG device after its creation",
                held.library,
                "see 'nvidia-smi mig -lgi' and the kernel's log",
            )
    except BaseException:
        destroy(ledger, driver, held, folder)
        raise
    return held.replaced(uuid=made[0].uuid)


def sweep(ledger: Ledger, library: str = "") -> list[str]:
    """Destroy the instances of released allocations; return their ids. Needs the lock.

    library: path of NVML here, since an agent in a pod may see it elsewhere; "": as records say.
    One in use, or one that the driver refuses to destroy, stays for the next sweep. Raises
    VcudaError: NVML cannot be asked.
    """
    gone: list[str] = []
    by_library: dict[str, list[Held]] = {}
    for held in instance_records.killed(ledger.state_dir):
        by_library.setdefault(library or held.library, [])
    for held in instance_records.stale(ledger):
        by_library.setdefault(library or held.library, []).append(held)
    for path, stale in by_library.items():
        with Mig(path) as driver:
            settle_static(ledger, driver)
            gone += [held.id for held in stale if destroy(ledger, driver, held)]
    return gone


def settle_static(ledger: Ledger, driver: Mig) -> None:
    """Record or destroy the instances of killed creations of a static layout. Needs the lock."""
    for held in instance_records.killed(ledger.state_dir):
        whole = [one for one in of(driver.instances(held.gpu), held) if one.uuid]
        if whole:
            found = held.replaced(uuid=whole[0].uuid)
            instance_records.write(ledger.state_dir, found, STATIC)
        else:
            destroy(ledger, driver, held, STATIC)


def release(ledger: Ledger, library: str = "") -> None:
    """After a release of allocations, without the ledger's lock: destroy what belonged to them.

    library: as for `sweep`. Raises VcudaError: NVML cannot be asked, or the lock is not free.
    """
    if instance_records.stale(ledger) or instance_records.killed(ledger.state_dir):
        with lock(ledger):
            sweep(ledger, library)
        _refresh(f"{ledger.state_dir}/host.json")


def _refresh(cache: str) -> None:
    """Ask NVML for the host's facts now, so that the next container's start need not."""
    found = facts_cache.read(cache).get("nvml")
    key = found.get("key") if isinstance(found, dict) else None
    if isinstance(key, list) and key and isinstance(key[0], str):
        try:
            host.load(key[0], cache)
        except VcudaError:
            pass  # the next start reports it


def destroy(ledger: Ledger, driver: Mig, held: Held, folder: str = FOLDER) -> bool:
    """Destroy the instance and its record; return whether both are removed. Needs the lock."""
    end = time.monotonic() + _IN_USE_SECONDS
    while True:
        mine = of(driver.instances(held.gpu), held)
        try:
            for instance in mine:
                if held.uuid and not held.ending:
                    held = held.replaced(ending=True)
                    instance_records.write(ledger.state_dir, held, folder)
                driver.destroy(instance)
            instance_records.remove(ledger.state_dir, held.id, folder)
            return True
        except InUse:
            if time.monotonic() >= end:
                return False
            time.sleep(_PAUSE_SECONDS)


def _is_at(instance: Instance, held: Held) -> bool:
    return (instance.profile, instance.start) == (held.profile, held.start)


def of(found: Sequence[Instance], held: Held) -> list[Instance]:
    """The instance that the record is of."""
    if not held.uuid:
        return [one for one in found if _is_at(one, held) and one.uuid not in held.before]
    by_uuid = [one for one in found if one.uuid == held.uuid]
    if by_uuid or not held.ending:
        return by_uuid
    # Killed between the two destructions: its compute instance is destroyed, and its UUID with it.
    return [one for one in found if _is_at(one, held) and not one.uuid]
