"""A hook called at a wrong moment or for an ended container prints one line and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import time
from typing import Any

import pytest

from engines.hooks.test_hook_entry_point import Hooked, hooked
from release.soak import traces
from support.host import cgroups
from support.host.private_host import PrivateHost, Result
from support.waiting import until
from vcuda_hook.hooks import device_rules
from vcuda_oci.host.device_nodes import DeviceNode

__all__ = ["hooked"]  # a fixture
MOMENTS = 6  # from the hook's start to the container's
DEAD = (
    r"vcuda-container-hook: (container {id}-\d+: its first process cannot be reached|"
    r"standard input: its process has ended|cgroup: no device rule can be changed): [^;]+; [^;]+ "
    r"\(allocation {id}-\d+\)"
)
LOOK = """
  cat /proc/self/mountinfo; ls -l /dev
  for minor in 0 1 255; do mknod /tmp/$minor c 195 $minor; done
  open-node /tmp/0 /tmp/1 /tmp/255
  rm /tmp/0 /tmp/1 /tmp/255
"""
# Runs before vcuda's hook, and kills the container's first process a little later.
KILLER = """
  pid=$(sed 's/.*"pid": *\\([0-9]*\\).*/\\1/')
  [ "$pid" -gt 1 ] || pid=$PPID
  (sleep {seconds}; kill -9 $pid) </dev/null >/dev/null 2>&1 &
"""


def test_a_container_that_dies_at_any_moment_leaves_nothing(
    hooked: Hooked, container: str, scratch: str
) -> None:
    kind = "createRuntime"
    log = os.path.join(scratch, "log")
    begin = time.monotonic()
    assert hooked.run(hooked.with_share(container, "true"), kind).rc == 0
    whole = time.monotonic() - begin
    before = traces.of(hooked.engine.host)
    for moment in range(MOMENTS):

        def killed(config: dict[str, Any], bundle: str, moment: int = moment) -> None:
            words = ["sh", "-c", KILLER.format(seconds=whole * moment / MOMENTS)]
            killer = {"path": "/bin/sh", "args": words, "env": ["PATH=/usr/bin:/bin"]}
            config["hooks"][kind].insert(0, killer)

        asked = hooked.with_share(f"{container}-{moment}", "sleep", "1000")
        result = hooked.run(asked, kind, change=killed, log=log)
        assert (result.rc != 0, result.stdout) == (True, "")
        # crun runs no poststop hook for a container that dies before its start: then a sweep frees
        # the share, this one or the next claim's.
        hooked.engine.host.check([hooked.product.prefix + "/bin/vcuda", "release", "--all-dead"])
        assert traces.leftovers(before, traces.of(hooked.engine.host)) == []
    with open(log) as lines:
        errors = re.findall(r"msg=\"(vcuda-container-hook: [^\"]*)\"", lines.read())
    assert [line for line in errors if not re.fullmatch(DEAD.format(id=container), line)] == []
    assert errors


def test_a_process_that_has_ended_changes_no_rule_of_the_hosts(scratch: str) -> None:
    """It is in v1's root cgroup then, with rules for every process."""
    node = DeviceNode(f"{scratch}/none", 199, 77)  # of a number that nothing has
    host = PrivateHost()
    try:
        script = "exec true"
        if cgroups.is_v1():
            folder = f"{cgroups.ROOT}/devices{host.cgroup_parent}"
            os.mkdir(folder)
            script = f"echo $$ >{folder}/cgroup.procs && exec true"
        with subprocess.Popen(["sh", "-c", script]) as ended:
            process = os.open(f"/proc/{ended.pid}", os.O_PATH | os.O_DIRECTORY)
            until(lambda: is_zombie(ended.pid), "the end of the process")
            with pytest.raises(OSError, match="has ended"):
                device_rules.change(process, "c", [], [node])
            os.close(process)
        number = os.makedev(node.major, node.minor)
        os.mknod(node.path, stat.S_IFCHR | 0o600, number)
        assert os.stat(node.path).st_rdev == number
    finally:
        host.close()


def is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return ") Z " in file.read()


def call_as_a_runtime(hooked: Hooked, scratch: str, bundle: str, pid: str) -> Result:
    """The hook of a caller that looks like a runtime; `pid` is a word of the shell."""
    state = json.dumps({"id": os.path.basename(bundle), "pid": "PID", "bundle": bundle})
    of_pid = state.replace('"PID"', pid)
    hook = f"{hooked.program} --config {hooked.product.config} createRuntime"
    with open(os.path.join(scratch, "create"), "w") as script:
        script.write(
            "sleep 0 & ended=$!; wait $ended\n"
            # Its parent never waits for it.
            "sh -c 'sh -c exit & echo $! >zombie; exec sleep 1000' & parent=$!; sleep 0.2\n"
            "zombie=$(cat zombie)\n"
            f"{hook} <<EOF\n{of_pid}\nEOF\n"
            "status=$?; kill -PIPE $parent; wait $parent\n"
            "while [ -e /proc/$zombie ]; do sleep 0.01; done; exit $status\n"
        )
    return hooked.engine.host.run(["sh", "-c", f"cd {scratch} && exec sh create"])


@pytest.mark.parametrize("pid", ["$ended", "$zombie"])
def test_a_process_that_has_ended_gets_nothing(
    hooked: Hooked, container: str, scratch: str, pid: str
) -> None:
    assert hooked.run(hooked.with_share(container + "-first", "true"), "createRuntime").rc == 0
    bundle = hooked.engine.make_bundle(hooked.with_share(container, "true"))
    before = traces.of(hooked.engine.host)
    try:
        refused = call_as_a_runtime(hooked, scratch, bundle, pid)
        after = traces.of(hooked.engine.host)
    finally:
        hooked.engine.delete(container)
    assert (refused.rc, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert re.match(
        "vcuda-container-hook: .*its (first )?process (has ended|cannot be reached)", refused.stderr
    )
    assert traces.leftovers(before, after) == []


def test_running_container_is_unchanged(hooked: Hooked, container: str, scratch: str) -> None:
    """It is too late: running programs could see the mounts change."""
    assert hooked.run(hooked.with_share(container + "-first", "true"), "createRuntime").rc == 0
    started = hooked.engine._start(hooked.with_share(container, "sleep", "1000"))
    try:
        assert started.rc == 0, started.stderr
        look = ["sh", "-c", LOOK]
        before = hooked.engine.exec(container, look), traces.of(hooked.engine.host)
        pid = hooked.engine.host.read("bundles", container, "pid")
        refused = call_as_a_runtime(hooked, scratch, hooked.engine.bundle(container), pid)
        after = hooked.engine.exec(container, look), traces.of(hooked.engine.host)
    finally:
        hooked.engine.delete(container)
    line = "vcuda-container-hook: container state: the container runs already; let the runtime"
    assert (refused.rc, refused.stdout) == (1, "")
    assert refused.stderr == f"{line} call this hook (allocation {container})\n"
    assert after[0] == before[0]
    assert traces.leftovers(before[1], after[1]) == []
