"""`vcuda run`: what is left when it is killed, or when the runtime leaves something."""

from __future__ import annotations

import os
import shutil

from support.engines.vcuda_command import PREFIX, SLEEPS, Command, all_gone
from support.files import write
from support.waiting import until


def test_killed_it_takes_its_container_along_and_releases(vcuda: Command) -> None:
    process, pid = vcuda.start("killed", "--core", "30", *SLEEPS)
    vcuda.send("KILL", pid)
    process.wait(30)
    all_gone(vcuda.leftovers)


def test_killed_at_any_moment_it_leaves_nothing(vcuda: Command) -> None:
    for hundredths in range(2, 32, 2):
        run = ["run", "--name", f"{PREFIX}{hundredths}", "--core", "30", *SLEEPS]
        killer = ["timeout", "--foreground", "-s", "KILL", f"0.{hundredths:02}"]
        vcuda.host.run([*killer, *vcuda.words(run)], env=vcuda.engine.environment())
    all_gone(vcuda.leftovers)


LEAVES_ITS_CGROUPS = """#!/bin/sh
found=$(ls -d /sys/fs/cgroup/vcuda-{name}* /sys/fs/cgroup/*/vcuda-{name}* 2>/dev/null)
"{runtime}" "$@"
result=$?
case " $* " in *" delete "*) mkdir -p $found; touch "$0.deleted" ;; esac
exit $result
"""


def test_cgroups_that_the_runtime_could_not_remove_are_removed(vcuda: Command) -> None:
    """crun warns of a cgroup that stays busy for too long, and releases the container."""
    runtime = os.path.dirname(vcuda.config) + "/" + os.path.basename(vcuda.engine.plain_runtime())
    with open(runtime, "w") as file:
        real = shutil.which(vcuda.engine.plain_runtime())
        file.write(LEAVES_ITS_CGROUPS.format(name=PREFIX + "busy", runtime=real))
    os.chmod(runtime, 0o755)
    process, pid = vcuda.start("busy", "--runtime", runtime, "--core", "30", *SLEEPS)
    vcuda.send("KILL", pid)
    process.wait(30)
    until(lambda: os.path.exists(runtime + ".deleted"), "the runtime to delete the container")
    all_gone(vcuda.leftovers)


def test_a_cgroup_parent_holds_the_container_and_nothing_else_is_left(vcuda: Command) -> None:
    job = vcuda.host.cgroup_parent + "-job"
    parent = job + "/step"
    refused = vcuda.run("--core", "30", "--cgroup-parent", parent, "--", "true")
    assert refused.stderr == (
        f"vcuda: {parent}: no such cgroup; make it, or name another --cgroup-parent\n"
    )
    mounts = vcuda.host.check(["awk", "$3 ~ /^cgroup2?$/ { print $2 }", "/proc/mounts"]).split()
    # Slurm makes a job's cgroup in some hierarchies only.
    (made, *_) = [point for point in mounts if point.endswith("/pids")] or mounts

    def found() -> list[str]:
        listed = ["find", *(point + job for point in mounts), "-type", "d"]
        return sorted(vcuda.host.run(listed).stdout.split())

    vcuda.host.check(["mkdir", "-p", made + parent])
    try:
        words = ["--cgroup-parent", parent, "--core", "30", *SLEEPS]
        process, pid = vcuda.start("below", *words)
        (own,) = [each for each in found() if each.startswith(f"{made}{parent}/vcuda-{PREFIX}")]
        assert vcuda.host.check(["cat", own + "/cgroup.procs"])
        vcuda.send("KILL", pid)
        process.wait(30)
        until(lambda: found() == [made + job, made + parent], "only the parent to be left")
        all_gone(vcuda.leftovers)
    finally:
        vcuda.host.run(["rmdir", made + parent, made + job])


FORGETS_THE_CONTAINER = """#!/bin/sh
if [ -e "$0.forget" ]; then
  echo "container does not exist" >&2
  exit 1
fi
exec "{runtime}" "$@"
"""


def test_processes_that_the_runtime_does_not_know_are_ended(vcuda: Command) -> None:
    """A runtime that was killed before it wrote its state does not know the container."""
    name = os.path.basename(vcuda.engine.plain_runtime())
    runtime = f"{os.path.dirname(vcuda.config)}/{name}"
    with open(runtime, "w") as file:
        file.write(FORGETS_THE_CONTAINER.format(runtime=shutil.which(name)))
    os.chmod(runtime, 0o755)
    process, pid = vcuda.start("unknown", "--runtime", runtime, "--core", "30", *SLEEPS)
    write(runtime + ".forget", "")
    vcuda.send("KILL", pid)
    process.wait(30)
    all_gone(vcuda.leftovers)
