"""Annotations of a pod's author under CRI-O cannot take a granted share away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.ledger.samples import shares_of
from support.wrapper.wrapper_node import HALF_SHARE, SPEC, Node
from vcuda_oci.container import request
from vcuda_oci.container.container import container_of
from vcuda_oci.ledger import liveness

ID = "4d2f9a1c7b3e"
UNITS = {"vcuda.io/request.vcuda-core": "50", "vcuda.io/request.vcuda-memory": "16"}
# What CRI-O 1.36 writes, as far as it is read; the container's own annotations are the kubelet's.
CRIO = {
    "io.container.manager": "cri-o",
    "io.kubernetes.cri-o.ContainerType": "container",
    "io.kubernetes.cri-o.Annotations": json.dumps(UNITS),
    "io.kubernetes.cri-o.SandboxID": "5a0e",
    "io.kubernetes.pod.uid": "uid1",
    "io.kubernetes.pod.namespace": "team",
    "io.kubernetes.pod.name": "web-0",
    "io.kubernetes.container.name": "main",
    **UNITS,
}
SYSTEMD = f"kubepods-besteffort-poduid1.slice:crio:{ID}"
CGROUPFS = f"/kubepods/besteffort/poduid1/crio-{ID}"


def made_by(cgroups_path: str, annotations: dict[str, str]) -> dict[str, Any]:
    linux = {**SPEC.get("linux", {}), "cgroupsPath": cgroups_path}
    return {**SPEC, "annotations": annotations, "linux": linux}


def test_share_of_a_pod_stays_as_long_as_its_pinned_namespace(node: Node, tmp_path: Path) -> None:
    """CRI-O runs no container for a sandbox."""
    pinned = tmp_path / "utsns"
    pinned.touch()
    spec = made_by(CGROUPFS, CRIO)
    spec["linux"]["namespaces"] = [{"type": "pid"}, {"type": "uts", "path": str(pinned)}]
    assert node.create(spec, id=ID) == (0, "")
    with node.ledger:
        assert node.ledger.sweep(liveness.is_alive) == []
        pinned.unlink()
        assert node.ledger.sweep(liveness.is_alive) == ["pod-uid1.main"]


@pytest.mark.parametrize(
    ("namespace", "found"),
    [
        ({"type": "uts", "path": "/var/run/utsns/1"}, "/run/utsns/1"),
        ({"type": "uts", "path": "/srv/utsns/1"}, "/srv/utsns/1"),
        ({"type": "uts", "path": "/proc/7/ns/uts"}, ""),
        ({"type": "ipc", "path": "/var/run/ipcns/1"}, ""),
        ({"type": "uts"}, ""),
    ],
)
def test_only_a_pinned_uts_namespace_stands_for_the_sandbox(
    namespace: dict[str, str], found: str
) -> None:
    spec = made_by(CGROUPFS, CRIO)
    spec["linux"]["namespaces"] = [namespace]
    assert container_of(spec).sandbox_file == found
    spec["annotations"] = {"io.kubernetes.cri.sandbox-uid": "uid1"}
    spec["linux"]["cgroupsPath"] = "/kubepods/x"
    assert container_of(spec).sandbox_file == ""


@pytest.mark.parametrize("cgroups_path", [SYSTEMD, CGROUPFS], ids=["systemd", "cgroupfs"])
@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"io.podman.annotations.init": "FALSE"},
        {"io.podman.x": "", "io.container.manager": "libpod"},
        {"io.kubernetes.cri.sandbox-uid": "uid2", "io.kubernetes.cri.container-name": "other"},
    ],
    ids=["nothing", "Podman's", "Podman's name", "containerd's"],
)
def test_a_pods_own_annotations_leave_its_granted_share(
    node: Node, cgroups_path: str, forged: dict[str, str]
) -> None:
    assert node.create(made_by(cgroups_path, {**CRIO, **forged}), id=ID) == (0, "")
    assert shares_of(node.ledger) == {"pod-uid1.main": HALF_SHARE}


@pytest.mark.parametrize(
    "cgroups_path",
    [
        f"machine.slice:libpod:{ID}",
        f"/libpod_parent/libpod-{ID}",
        f"/a/libpod-payload-{ID}",
        "",  # podman run --cgroups=disabled
        f"/system.slice/web@a:b:c.service/libpod-payload-{ID}",
    ],
)
def test_an_image_under_podman_cannot_say_that_crio_made_its_container(
    node: Node, cgroups_path: str
) -> None:
    """Not even where Podman writes no annotation of its own that shows it."""
    node.configure(accept_request_from_env="never")
    assert node.create(made_by(cgroups_path, CRIO), id=ID) == (0, "")
    assert shares_of(node.ledger) == {}


@pytest.mark.parametrize("cgroups_path", ["", "/x/crio", 7, None, "a:b", "/crio-1/x"])
def test_a_cgroup_of_no_known_name_proves_nothing(cgroups_path: Any) -> None:
    podman = {**CRIO, "io.podman.annotations.init": "FALSE"}
    assert request.find(container_of(made_by(cgroups_path, podman))) is None


def test_the_pods_own_request_still_counts_for_nothing(node: Node) -> None:
    own = {**CRIO, "io.kubernetes.cri-o.Annotations": "{}", "io.podman.x": "1"}
    assert node.create(made_by(SYSTEMD, own), id=ID) == (0, "")
    assert shares_of(node.ledger) == {}
