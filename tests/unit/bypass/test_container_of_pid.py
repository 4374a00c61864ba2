"""The container of a process, by cgroups as engines and their drivers write them."""

from __future__ import annotations

import pytest

from vcuda_hook.live import container_cgroups
from vcuda_plugin.agent.bypass.container_of_pid import Index

ID = "4f1c" * 16
OTHER = "09ab" * 16
POD = "3f5e7c1a-0b6d-4c3e-9a55-1d2f3b4c5d6e"
V1 = (
    "12:pids:{path}\n11:cpuset:{path}\n10:devices:{path}\n5:cpu,cpuacct:{path}\n2:memory:{path}\n"
    "1:name=systemd:{path}\n0::/system.slice/engine.service\n"
)
V2 = "0::{path}\n"
BURSTABLE = f"kubepods-burstable-pod{POD.replace('-', '_')}.slice"
USER = "/user.slice/user-1000.slice"
SLICES = f"/kubepods.slice/kubepods-burstable.slice/{BURSTABLE}"

# As read from /proc/PID/cgroup: how each engine names a container with its cgroup drivers.
PATHS = {
    "docker, cgroupfs": f"/docker/{ID}",
    "docker, systemd": f"/system.slice/docker-{ID}.scope",
    "docker, a systemd inside": f"/system.slice/docker-{ID}.scope/init.scope",
    "docker in docker": f"/docker/{ID}/docker/{OTHER}",
    "containerd CRI, cgroupfs": f"/kubepods/besteffort/pod{POD}/{ID}",
    "containerd CRI, systemd": f"{SLICES}/cri-containerd-{ID}.scope",
    "containerd CRI, systemd not asked": f"/system.slice/{BURSTABLE}:cri-containerd:{ID}",
    "containerd ctr": f"/default/{ID}",
    "nerdctl, systemd": f"/system.slice/nerdctl-{ID}.scope",
    "CRI-O, systemd": f"{SLICES}/crio-{ID}.scope",
    "CRI-O, crun": f"{SLICES}/crio-{ID}.scope/container",
    "CRI-O, cgroupfs": f"/kubepods/burstable/pod{POD}/crio-{ID}",
    "podman, systemd": f"/machine.slice/libpod-{ID}.scope/container",
    "podman, cgroupfs": f"/libpod_parent/libpod-{ID}",
    "podman, rootless": f"{USER}/user@1000.service/user.slice/libpod-{ID}.scope",
    "runc": f"/{ID}",
    "vcuda run": f"/vcuda-{ID}.4711.5123501",
    "vcuda run in a service": f"/system.slice/train.service/vcuda-{ID}.4711.5123501",
    "runc, systemd": f"/user.slice/runc-{ID}.scope",
}  # fmt: skip
NOBODYS = {
    "a service": "/system.slice/sshd.service",
    "podman's monitor": f"/machine.slice/libpod-conmon-{ID}.scope",
    "CRI-O's monitor": f"{SLICES}/crio-conmon-{ID}.scope",
    "a longer name": f"/docker/x{ID}",
    "the pod": SLICES,
    "another": f"/docker/{OTHER}",
    "the root": "/",
}


def cgroups(text: str) -> dict[str, str]:
    """As container_processes.cgroups reads it."""
    lines = [line.split(":", 2) for line in text.splitlines()]
    return {number + controllers: path for number, controllers, path in lines}


@pytest.mark.parametrize("lines", [V1, V2], ids=["v1 and hybrid", "v2"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_container_is_known_by_its_name_in_the_path(path: str, lines: str) -> None:
    process = cgroups(lines.format(path=path))
    found = container_cgroups.by_name(process, ID)
    assert found and all(ID in folder.rpartition("/")[2] for folder in found.values())
    assert Index({"it": found}).of(process) == "it"
    sibling = cgroups(lines.format(path=path.replace(ID, "7" * 64)))
    assert Index({"it": found}).of(sibling) is None


@pytest.mark.parametrize("lines", [V1, V2], ids=["v1 and hybrid", "v2"])
@pytest.mark.parametrize("path", NOBODYS.values(), ids=NOBODYS)
def test_similar_cgroup_name_is_no_container(path: str, lines: str) -> None:
    assert container_cgroups.by_name(cgroups(lines.format(path=path)), ID) == {}


def test_a_login_session_is_no_container_of_that_number() -> None:
    process = cgroups(V2.format(path="/user.slice/user-1.slice/session-1.scope"))
    assert container_cgroups.by_name(process, "1") == {}


@pytest.mark.parametrize("lines", [V1, V2], ids=["v1 and hybrid", "v2"])
def test_first_process_decides_if_the_path_names_no_container(lines: str) -> None:
    own = cgroups(lines.format(path="/system.slice/vcuda-node-agent.service"))
    init = cgroups(lines.format(path="/batch/job-7"))
    folders = container_cgroups.folders_of(init, "training", own)
    index = Index({"it": folders})
    # The engine's own folder, in which hybrid hosts leave the container, is not the container's.
    assert set(folders.values()) == {"/batch/job-7"}
    assert len(folders) == len(init) - (lines == V1)
    assert index.of(init) == index.of(cgroups(lines.format(path="/batch/job-7/worker"))) == "it"
    assert index.of(cgroups(lines.format(path="/batch/job-71"))) is None
    assert index.of(cgroups(lines.format(path="/batch"))) is None
    assert index.of(own) is None


def test_a_container_without_cgroups_of_its_own_has_none() -> None:
    own = cgroups(V2.format(path="/system.slice/vcuda-node-agent.service"))
    assert container_cgroups.folders_of(own, ID, own) == {}
    assert container_cgroups.folders_of(cgroups(V2.format(path="/")), ID, own) == {}


def test_an_init_system_inside_does_not_hide_its_neighbours() -> None:
    scope = f"/system.slice/docker-{ID}.scope"
    init = cgroups(V2.format(path=f"{scope}/init.scope"))
    folders = container_cgroups.folders_of(init, ID, {})
    assert folders == {"0": scope}
    assert Index({"it": folders}).of(cgroups(V2.format(path=f"{scope}/system.slice/job"))) == "it"


def test_a_forged_id_hides_no_container_and_a_users_name_takes_no_other_containers() -> None:
    scope = f"/docker/{ID}"
    assert container_cgroups.by_name({"0": f"{scope}/{ID}/x"}, ID) == {"0": scope}
    assert container_cgroups.by_name({"0": "/default/default"}, "default") == {
        "0": "/default/default"
    }


def test_a_process_is_its_outer_containers() -> None:
    outer, inner = {"0": f"/docker/{ID}"}, {"0": f"/docker/{ID}/docker/{OTHER}"}
    index = Index({"inner": inner, "outer": outer})
    assert index.of({"0": f"/docker/{ID}/docker/{OTHER}/x"}) == "outer"


def test_one_hierarchy_alone_makes_no_process_a_member() -> None:
    """A user with write access to one v1 hierarchy cannot take another container's name."""
    index = Index({"it": {"2memory": "/docker/a", "12pids": "/docker/a"}})
    assert index.of({"2memory": "/docker/a", "12pids": "/docker/b"}) is None
