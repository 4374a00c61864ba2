"""SIGKILL to every process of a container, and to nobody else's."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from vcuda_hook.live import container_processes
from vcuda_oci.guest import process

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .held_containers import Held

# A process that forks as fast as it is killed: its container's first process dies in the first
# round, and a pid namespace does not outlive that.
_ROUNDS = 20


def stop(held: Held, pids: Collection[int], owner: Callable[[int], Held | None]) -> int:
    """How many were killed. pids: these alone where the container has no cgroup of its own.

    owner: whose process a pid is now; it raises OSError: it is gone.
    """
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        members = _members(held, pids)
        # The first process of the container takes those of its pid namespace along.
        new = sorted(set(members) - killed, key=lambda pid: (pid != held.init, pid))
        sent = {pid for pid in new if _kill(pid, held, owner)}
        if not sent:
            break
        killed |= sent
    return len(killed)


def _members(held: Held, pids: Collection[int]) -> Collection[int]:
    """All that may be the container's."""
    if held.cgroups:
        return container_processes.below(held.cgroups)
    # While its runtime says nothing, each process is judged by itself.
    return pids if held.init else process.pids()


def _kill(pid: int, held: Held, owner: Callable[[int], Held | None]) -> bool:
    """Kill a process if it is the container's.

    The descriptor is of the process that had the pid when it was opened. If another has it since,
    that one is looked at, and the signal goes to the one that has ended.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if owner(pid) is not held:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
