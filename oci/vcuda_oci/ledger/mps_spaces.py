"""Namespaces of MPS, version 3: one for each container under MPS, with the container's limits.

The daemon holds the namespaces, `ready.json` lists those with their limits set, and the allocations
say which must exist. A name is a hash of the allocation's id and limits: a container that is
claimed anew with other limits gets another namespace.

`follow` makes the daemon's namespaces those of the allocations. Under the lock of MPS it lists them
before it reads the ledger, and a claim writes its allocation before its namespace is made: so no
namespace in use is removed. What a kill leaves out or behind, the next `follow` mends: the next
keeper's first one, or that of the next sweep.
"""

from __future__ import annotations

import shutil
import subprocess

from ..model import mps
from ..model.allocation import Allocation
from ..model.errors import VcudaError
from ..system import files
from . import mps_control, mps_folder
from .ledger import Ledger
from .mps_folder import Ready


def is_in_step(now: Ready, containers: list[Allocation]) -> bool:
    """Whether `ready.json` lists the namespaces of these containers, and no others."""
    return now.spaces is None or set(now.spaces) == set(map(mps.space_of, containers))


def follow(ledger: Ledger, folder: str) -> None:
    """Add and remove namespaces of the folder's daemon. Needs the lock of MPS. Raises VcudaError: a
    record is broken, or the daemon refuses; OSError, subprocess.SubprocessError: the control
    program cannot run."""
    tree, now = mps_folder.wanted(folder), mps_folder.ready(folder)
    if tree is None or now is None or now.spaces is None:
        return
    found = mps_control.spaces(folder, tree)
    containers = mps_folder.containers(ledger, tree["gpu"])
    wanted = {mps.space_of(one): mps.limits_of(one) for one in containers}
    for name in found.keys() - wanted.keys():
        mps_control.remove_space(folder, tree, name)
    missing = [name for name, limits in wanted.items() if found.get(name) != limits.as_listed]
    for name in missing:
        mps_control.add_space(folder, tree, name, name not in found, wanted[name])
    if missing:
        found = mps_control.spaces(folder, tree)
    for name in missing:
        if found.get(name) != wanted[name].as_listed:
            what = f"MPS has not taken the limits of namespace {name}"
            raise VcudaError(what, folder, f"see {folder}/log")
    if set(now.spaces) != set(wanted):
        mps_folder.write_ready(folder, now.replaced(spaces=sorted(wanted)))


def sweep(ledger: Ledger) -> None:
    """End each daemon without a container, and remove each namespace without one.

    Raises VcudaError: a record is broken, or a daemon does not answer.
    """
    for folder in mps_folder.folders(ledger.state_dir):
        with mps_folder.lock(ledger.state_dir):
            shared: list[str] = []
            with ledger:
                stays = mps_folder.is_wanted(ledger, folder)
                if not stays:
                    shared = mps_folder.shared_files(folder)
                    files.remove(folder + "/wanted.json")
                    files.remove(folder + "/ready.json")
            if stays:
                _follow_if_it_can(ledger, folder)
                continue
            mps_folder.end_all(folder)
            mps_folder.remove_shared(shared)
            with ledger:
                if mps_folder.wanted(folder) is None:
                    shutil.rmtree(folder, ignore_errors=True)


def _follow_if_it_can(ledger: Ledger, folder: str) -> None:
    """Raises VcudaError: a record is broken, or a daemon that runs refuses."""
    try:
        follow(ledger, folder)
    except (OSError, subprocess.SubprocessError):
        pass  # an agent in a pod has no control program: its host's keeper does it
    except VcudaError:
        if mps_folder.ready(folder):
            raise
