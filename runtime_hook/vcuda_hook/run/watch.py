"""End a container after its ``vcuda run`` was killed, and release its share."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import subprocess
import time

from vcuda_oci.guest import process
from vcuda_oci.ledger import events, liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.start import left_over
from vcuda_oci.system import kernel_tables

from ..live import cgroup_folders

GRACE_SECONDS = 30


def watch_this_process(
    claimant: list[int], state_dir: str, runtime_root: str, container_id: str, group: str
) -> None:
    """Start a watcher that waits for the end of this process, also after an exec.

    Usually the low-level runtime has deleted the container by then, and nothing is left to do. The
    watcher is no child of this process (runc waits for all of its children), is in its own session
    (a signal to the process group must not kill it), is in init's cgroups (Slurm and systemd end a
    job by its cgroup), and keeps no file open. claimant: pid and start time of this process.
    group: the container's cgroup.
    """
    missing = _missing_parents(group)
    waiting_for = os.pidfd_open(claimant[0])
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(waiting_for)
        return
    try:
        os.setsid()
        with contextlib.suppress(OSError):  # without it the watcher is in its caller's cgroups
            cgroup_folders.join(process.open_folder(1))
        if os.fork():
            os._exit(0)
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != waiting_for:
                with contextlib.suppress(OSError):  # the listing's own descriptor
                    os.close(int(name))
        select.select([waiting_for], [], [])
        try:
            clean_up_after(Ledger(state_dir), claimant, runtime_root, container_id, group)
        finally:
            _remove_cgroups(group)
            for folder in missing:
                with contextlib.suppress(OSError):  # another container's parent, too
                    os.rmdir(folder)
    finally:
        os._exit(0)


def clean_up_after(
    ledger: Ledger, claimant: list[int], runtime_root: str, container_id: str, group: str
) -> None:
    """End and release the container that the ended process `claimant` had claimed.

    By claimant and not by id: an id that was refused because it is in use is another container's.
    group: the container's cgroup.
    """
    left = _claimed_by(ledger, claimant)
    if left is None:
        # Killed after writing the pages and before the record.
        if os.path.isdir(f"{ledger.containers}/{container_id}"):
            with ledger:
                ledger.sweep(lambda _: True)
        left_over.destroy_released(ledger)
        return
    subprocess.run(  # ends the container; its poststop hook releases the share
        [*left.runtime, "delete", "--force", left.container_id],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=GRACE_SECONDS,
        check=False,
    )
    # Touch nothing after the release: a caller that waits for it may remove all these folders, and
    # a query to the runtime would create its folder again.
    if _claimed_by(ledger, claimant) is None:
        return
    # A runtime that was killed before it wrote its state does not know the container's processes.
    _end_processes(_cgroups(group))
    if liveness.is_alive(left):
        return
    # A runtime that was killed before it wrote its state does not know this folder.
    shutil.rmtree(f"{runtime_root}/{container_id}", ignore_errors=True)
    with ledger:
        if _claimed_by(ledger, claimant):
            ledger.remove(left.id)
            ledger.record_event(events.RELEASED, left, "its 'vcuda run' was killed")
    left_over.destroy_released(ledger)


def _claimed_by(ledger: Ledger, claimant: list[int]) -> Allocation | None:
    allocations, _ = ledger.read()
    return next((found for found in allocations if found.claimant == claimant), None)


def _cgroups(group: str) -> list[str]:
    """The folders of a `vcuda run`'s cgroup, one in each hierarchy. No later container gets it.

    Raises ValueError for any other path: processes of these folders are killed.
    """
    is_path = group.startswith("/") and os.path.normpath(group) == group
    if not is_path or not os.path.basename(group).startswith("vcuda-"):
        raise ValueError(f"not a cgroup of vcuda run: {group}")
    return [mount.point + group for mount in _hierarchies()]


def _hierarchies() -> list[kernel_tables.Mount]:
    return [mount for mount in kernel_tables.mounts() if mount.kind in ("cgroup", "cgroup2")]


def _missing_parents(group: str) -> list[str]:
    """Folders above the container's cgroup that the runtime will make, the lowest first.

    Slurm makes a job's cgroup in some of v1's hierarchies only, and the runtime in all.
    """
    found = []
    for mount in _hierarchies():
        folder = os.path.dirname(mount.point + group)
        while len(folder) > len(mount.point) and not os.path.isdir(folder):
            found.append(folder)
            folder = os.path.dirname(folder)
    return found


def mounted_cgroup(group: str) -> str:
    """The cgroup's path below a hierarchy's mount, as runtimes take it; "": no such cgroup.

    group: the same, or the path in /proc/PID/cgroup. They differ where a mount shows only a part of
    the hierarchy.
    """
    for mount in _hierarchies():
        root = mount.root.rstrip("/")
        for path in (group.removeprefix(root), group):
            if path.startswith("/") and os.path.isdir(mount.point + path):
                return path
    return ""


def _end_processes(folders: list[str]) -> None:
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline:
        pids = {pid for folder in folders for pid in _pids(folder)}
        if not pids:
            return
        for pid in pids:
            _kill(pid, folders)
        time.sleep(0.02)


def _kill(pid: int, folders: list[str]) -> None:
    """Kill the process if it is still in one of the cgroups: another may have its pid by now."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return  # it has ended
    try:
        if any(pid in _pids(folder) for folder in folders):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def _pids(folder: str) -> set[int]:
    """The processes of the cgroup and of those below; not those outside of this pid namespace."""
    found: set[int] = set()
    for below, _, _ in os.walk(folder):
        try:
            with open(f"{below}/cgroup.procs") as file:
                found.update(map(int, file.read().split()))
        except OSError:
            pass  # removed meanwhile
    return found - {0}


def _remove_cgroups(group: str) -> None:
    """Remove the container's cgroups with those below, and end what is left in them.

    A runtime that was killed before it wrote its state does not know the cgroup. crun releases the
    container even where it could not remove the cgroup, because a process took long to end.
    """
    left = _cgroups(group)
    deadline = time.monotonic() + GRACE_SECONDS
    while left and time.monotonic() < deadline:
        _end_processes(left)
        left = [folder for folder in left if not _remove_cgroup(folder)]
        time.sleep(0.02)


def _remove_cgroup(folder: str) -> bool:
    """Remove the cgroup; return whether there is nothing left to wait for."""
    for below, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(below)
        except FileNotFoundError:
            pass
        except OSError as error:
            return error.errno != errno.EBUSY
    return True
