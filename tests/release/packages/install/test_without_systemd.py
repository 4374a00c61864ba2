"""On a host without systemd the packages print which services to start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import Machine
from release.packages.hosts.ways import Way
from support.waiting import until

WHY = "since no systemd runs here"
KUBECONFIG = "/etc/kubernetes/scheduler.conf"
# Of each package, what its service runs.
SERVICES = {
    "vcuda-runtime": "vcuda serve",
    "vcuda-node-agent": "vcuda-node-agent",
    "vcuda-scheduler-extender": f"vcuda-scheduler-extender --insecure --kubeconfig {KUBECONFIG}",
}


def install(made: Machine, way: Way, folder: str) -> str:
    """What it said."""
    done = way.install(made, folder)
    assert done.rc == 0, done.stderr
    return done.stderr


def give_a_tmpfs(made: Machine) -> None:
    made.check("mkdir", "-p", "/run/vcuda")
    made.check("mount", "-t", "tmpfs", "-o", "mode=755", "vcuda-tests", "/run/vcuda")


def goes_on(package: str) -> str:
    """What an upgrade says of its service that runs."""
    program = SERVICES[package].partition(" --")[0]
    return f"{package}: {program}: goes on with the code that it began with, {WHY}; start it anew"


@contextlib.contextmanager
def running(made: Machine, command: str) -> Iterator[None]:
    line = f"{command} >/dev/null 2>&1 & echo $! >/pid"
    made.check("sh", "-c", line)
    pid = made.read("/pid").strip()
    try:
        until(lambda: "python3" in made.read(f"/proc/{pid}/cmdline"), command)
        yield
    finally:
        made.run("kill", pid)  # the agent has ended by itself where its files are gone
        until(lambda: not made.exists(f"/proc/{pid}"), f"{command} ends")


def test_a_step_that_only_systemd_takes_is_reported_until_it_is_done(
    plain: Machine, way: Way
) -> None:
    way.prepare(plain)
    assert not plain.exists("/run/systemd/system")
    assert install(plain, way, built.folder()) == node.NO_TMPFS
    give_a_tmpfs(plain)
    assert install(plain, way, built.folder()) == ""


def test_a_service_that_runs_on_over_an_upgrade_and_a_removal_is_reported(
    plain: Machine, way: Way
) -> None:
    way.prepare(plain)
    give_a_tmpfs(plain)
    assert install(plain, way, built.folder()) == ""
    node.make_gpus(plain)
    node.join_cluster(plain)
    # Each of them runs at one of the two, and not at the other.
    runtime, agent, extender = SERVICES
    upgrades = (([runtime, extender], built.next_version()), ([agent], built.folder()))
    for packages, folder in upgrades:
        with contextlib.ExitStack() as stack:
            for package in packages:
                stack.enter_context(running(plain, SERVICES[package]))
            printed = install(plain, way, folder).splitlines()
        assert sorted(line for line in printed if WHY in line) == sorted(map(goes_on, packages))
    with running(plain, SERVICES["vcuda-node-agent"]):
        removed = way.uninstall(plain)
    assert removed.rc == 0
    message = f"vcuda-node-agent: vcuda-node-agent: runs on, {WHY}; stop it by what started it"
    assert [line for line in removed.stderr.splitlines() if WHY in line] == [message]


def test_an_installation_into_an_image_leaves_the_hosts_services_alone(
    plain: Machine, way: Way
) -> None:
    """As a container image is built on a host with a visible /proc."""
    way.prepare(plain)
    install(plain, way, built.folder())
    with running(plain, "vcuda serve"):
        plain.check("mkdir", "/image", "/run/layer")
        plain.check("mount", "-t", "tmpfs", "vcuda-tests", "/run/layer")
        plain.check("mkdir", "/run/layer/upper", "/run/layer/work")
        layers = "lowerdir=/,upperdir=/run/layer/upper,workdir=/run/layer/work"
        plain.check("mount", "-t", "overlay", "-o", layers, "overlay", "/image")
        plain.check("mount", "--bind", "/mnt/shared", "/image/mnt/shared")
        plain.check("mount", "--rbind", "/proc", "/image/proc")
        line = way.adding(plain, built.folder())
        printed = plain.run("chroot", "/image", "sh", "-c", line)
    assert (printed.rc, printed.stderr) == (0, node.NO_TMPFS)
