"""Send SIGKILL to every process of a container and to no other process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection

from vcuda_hook.live import container_processes
from vcuda_oci.guest import process

from .held_containers import Held

# A process may fork as fast as it is killed. The first round kills the container's first process,
# and the kernel then ends its whole pid namespace.
_ROUNDS = 20


def stop(held: Held, pids: Collection[int], owner: Callable[[int], Held | None]) -> int:
    """Kill the container's processes; return how many were killed.

    pids: the processes to kill if the container has no cgroup of its own.
    owner: returns the container that a pid belongs to now; raises OSError if the process has ended.
    """
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        members = _members(held, pids)
        # First the container's first process: when it dies, the kernel ends its pid namespace.
        new = sorted(set(members) - killed, key=lambda pid: (pid != held.init, pid))
        sent = {pid for pid in new if _kill(pid, held, owner)}
        if not sent:
            break
        killed |= sent
    return len(killed)


def _members(held: Held, pids: Collection[int]) -> Collection[int]:
    """Return the pids of all processes that may belong to the container."""
    if held.cgroups:
        return container_processes.below(held.cgroups)
    # The runtime has not reported the first process yet: check every process of the node.
    return pids if held.init else process.pids()


def _kill(pid: int, held: Held, owner: Callable[[int], Held | None]) -> bool:
    """Kill a process if it belongs to the container; return whether the signal was sent.

    The descriptor refers to the process that had the pid when it was opened. If the pid is reused
    before the owner is checked, the signal goes to the ended process and kills nothing.
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
