"""Namespaces of MPS, version 3: one for each container under MPS, with the container's limits.

The daemon holds the namespaces, `ready.json` lists those with their limits set, and the allocations
say which must exist. A name is a hash of the allocation's id and limits: a container that is
claimed anew with other limits gets another namespace.

`follow` makes the daemon's namespaces those of the allocations. Under the lock of MPS it lists them
before it reads the ledger, and a claim writes its allocation before its namespace is made: so no
namespace in use is removed. After a kill the next keeper's first `follow` adds what is missing and
removes what is left over.
"""

from __future__ import annotations

import shutil

from ..ledger.ledger import Ledger
from ..model import mps
from ..model.allocation import Allocation
from ..model.errors import VcudaError
from ..system import files
from . import mps_control, mps_folder
from .mps_folder import Ready


def is_in_step(now: Ready, containers: list[Allocation]) -> bool:
    """Whether `ready.json` has the namespaces of these containers, and no other."""
    return now.spaces is None or set(now.spaces) == set(map(mps.space_of, containers))


def follow(ledger: Ledger, folder: str) -> None:
    """Add and remove namespaces of the folder's daemon. Needs the lock of MPS. Raises VcudaError: a
    record is broken, or the daemon refuses; OSError, subprocess.SubprocessError:
    it cannot be asked."""
    tree, now = mps_folder.wanted(folder), mps_folder.ready(folder)
    if tree is None or now is None or now.spaces is None:
        return
    found = mps_control.spaces(folder, tree)
    containers = mps_folder.containers(ledger, tree["gpu"])
    wanted = {mps.space_of(one): mps.limits_of(one) for one in containers}
    numbers = {mps.space_of(one): one.partition for one in containers if now.binds}
    left_over = found.keys() - wanted.keys()
    missing = [name for name, limits in wanted.items() if found.get(name) != limits.as_listed]
    for name in missing:
        is_new, number = name not in found, numbers.get(name, 0)
        mps_control.add_space(folder, tree, name, is_new, wanted[name], number)
    if missing:
        found = mps_control.spaces(folder, tree)
    for name in missing:
        if found.get(name) != wanted[name].as_listed:
            what = f"MPS has not taken the limits of namespace {name}"
            raise VcudaError(what, folder, f"see {folder}/log")
    if set(now.spaces) != set(wanted):
        mps_folder.write_ready(folder, now.replaced(spaces=sorted(wanted)))
    # Last: a namespace that cannot be removed keeps no container from its start.
    for name in left_over:
        mps_control.remove_space(folder, tree, name)


def sweep(ledger: Ledger) -> None:
    """End the daemons without a container. Raises VcudaError: a record is broken.

    It asks no daemon, and takes the lock of MPS only where one has to end: a daemon that hangs
    delays no container's end. The keeper removes the namespaces of a daemon that stays.
    """
    for folder in mps_folder.folders(ledger.state_dir):
        if not mps_folder.is_wanted(ledger, folder):
            with mps_folder.lock(ledger.state_dir):
                _end_unless_wanted(ledger, folder)


def _end_unless_wanted(ledger: Ledger, folder: str) -> None:
    """Needs the lock of MPS."""
    with ledger:
        if mps_folder.is_wanted(ledger, folder):
            return
        shared = mps_folder.shared_files(folder)
        files.remove(folder + "/wanted.json")
        files.remove(folder + "/ready.json")
    mps_folder.end_all(folder)
    mps_folder.remove_shared(shared)
    with ledger:
        if mps_folder.wanted(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
