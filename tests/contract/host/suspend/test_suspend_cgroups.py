"""Which processes are suspended with a container: all of its cgroup, and no others."""

from __future__ import annotations

import os

from support.files import write
from support.host import cgroups
from support.suspend.suspended import Node, node

__all__ = ["node"]


def test_processes_leave_though_the_first_one_has_moved_below_them(node: Node) -> None:
    """As systemd in a container, which moves itself into init.scope."""
    box = node.box("box", 2)
    for root in cgroups.hierarchies():
        folder = f"{root}{box.group}/init.scope"
        os.mkdir(folder)
        for name in ("cpuset.cpus", "cpuset.mems"):
            above = f"{root}{box.group}/{name}"
            if os.path.exists(above) and os.path.exists(f"{folder}/{name}"):
                with open(above, encoding="ascii") as file:
                    write(f"{folder}/{name}", file.read())
        write(f"{folder}/cgroup.procs", str(box.processes[0].pid))
    assert node.vcuda("suspend", "box").returncode == 0
    assert node.used() == 0
    assert node.vcuda("resume", "box").returncode == 0
    assert box.all_work()


def test_container_in_the_cgroup_of_a_hosts_program_is_refused(node: Node) -> None:
    """As rootless containers on cgroup v1: the others there are the user's own programs."""
    box = node.box("box", 1)
    mine = node.record("box")
    with node.ledger:
        node.ledger.record(mine.replaced(container_id="other"))
    node.runtime.set_state("other", "running", pid=box.processes[0].pid)
    refused = node.vcuda("suspend", "box")
    assert (refused.returncode, node.step("box")) == (1, None)
    assert "it has no cgroup of its own" in refused.stderr
    assert box.all_work()
