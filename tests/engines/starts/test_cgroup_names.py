"""A host user who names a cgroup so that the agent takes the user's processes for a
container's."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from engines.hostile.test_bypass_watch import TAKEN, watched
from support.files import ROOT
from support.waiting import until

__all__ = ["watched"]  # the fixture

NOBODY = 65534
# As root it does what systemd does for every user who logs in: a cgroup of the user's own.
USER = f"""
import os, sys
top, victim, libraries, driver_root, size = sys.argv[1:]
base, user = top + "/users-own", {NOBODY}
os.makedirs(base + "/session")
for place in (base, base + "/cgroup.procs", base + "/session", base + "/session/cgroup.procs"):
    os.chown(place, user, user)
with open(base + "/session/cgroup.procs", "w") as members:
    members.write("0")
os.setgroups([]), os.setresgid(user, user, user), os.setresuid(user, user, user)
folder = base + "/x\\r0::" + victim
os.makedirs(folder)
with open(folder + "/cgroup.procs", "w") as members:
    members.write("0")
os.environ.update(LD_LIBRARY_PATH=libraries, SOFTGPU_ROOT=driver_root)
words = ["vcuda-workload", "hold", "--bytes", size, "--seconds", "100"]
os.execv(driver_root + "/../vcuda-workload", words)
"""


def test_a_users_cgroup_that_names_a_containers_blames_and_ends_no_container(
    watched: Any, container: str, scratch: str
) -> None:
    with watched("runc-v2", bypass="stop") as node:
        victim = node.start(container, ["sleep", "100"])
        driver = os.path.join(scratch, "driver")
        for folder in (scratch, driver):
            os.chmod(folder, 0o755)
        # The checkout may be in a folder that is closed to other users.
        shutil.copy(f"{ROOT}/build/softgpu/vcuda-workload", scratch)
        host = node.engine.host
        mounts = host.check(["cat", "/proc/mounts"]).splitlines()
        top = next(line.split(" ")[1] for line in mounts if " cgroup2 " in line)
        libraries = next(place for place, _, names in os.walk(driver) if "libcuda.so.1" in names)
        words = [top + host.cgroup_parent, f"{host.cgroup_parent}/{victim}", libraries, driver]
        command = [sys.executable, "-ISc", USER, *words, str(TAKEN)]
        user = host.daemon(command, "user.log")
        try:
            # A process without a share is reported, and that is all.
            until(
                lambda: any("processes without a share" in line for line in node.agent.log()),
                seconds=60,
            )
            assert node.found() == []
            assert node.engine.exec(victim, ["true"]).rc == 0
        finally:
            user.kill()
            user.wait()
            node.engine.delete(victim)
