"""A container's identity comes from its engine alone."""

from __future__ import annotations

from typing import Any

import pytest

from vcuda_oci.container import identity
from vcuda_oci.model.errors import VcudaError

CONTAINERD = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.sandbox-uid": "uid-1",
    "io.kubernetes.cri.sandbox-namespace": "team",
    "io.kubernetes.cri.sandbox-name": "web-0",
    "io.kubernetes.cri.container-name": "main",
    "io.kubernetes.cri.sandbox-id": "5a",
}
CRIO = {
    "io.kubernetes.cri-o.ContainerType": "container",
    "io.kubernetes.pod.uid": "uid-1",
    "io.kubernetes.pod.namespace": "team",
    "io.kubernetes.pod.name": "web-0",
    "io.kubernetes.container.name": "main",
    "io.kubernetes.cri-o.SandboxID": "5a",
}
POD = {
    "key": "pod-uid-1.main",
    "container_id": "c1",
    "pod_uid": "uid-1",
    "namespace": "team",
    "pod_name": "web-0",
    "container_name": "main",
    "sandbox_id": "5a",
    "sandbox_file": "",
    "engine": {},
}
ALONE = {**dict.fromkeys(POD, ""), "key": "c1", "container_id": "c1", "engine": {}}


@pytest.mark.parametrize(
    ("annotations", "expected"), [(CONTAINERD, POD), (CRIO, POD), ({}, ALONE)],
    ids=["containerd", "CRI-O", "no pod"],
)  # fmt: skip
def test_the_engine_identifies_the_container(annotations: Any, expected: Any) -> None:
    owner = identity.owner_of(annotations, "c1")
    assert owner.fields() == expected
    assert owner.is_pod is identity.is_pod(annotations) is bool(annotations)


@pytest.mark.parametrize(
    "podman",
    [
        {"io.container.manager": "libpod"},
        {"io.container.manager": "none"},
        {"io.container.manager": "cri-o", "io.podman.annotations.init": "FALSE"},
    ],
    ids=["as Podman says", "renamed by the image", "CRI-O's name taken by the image"],
)
@pytest.mark.parametrize("forged", [CONTAINERD, CRIO])
def test_an_image_that_podman_runs_cannot_forge_a_pod(
    forged: dict[str, str], podman: dict[str, str]
) -> None:
    """Podman makes the annotations of an image's manifest the container's own."""
    assert identity.owner_of({**forged, **podman}, "c1").fields() == ALONE


def test_cri_o_names_itself_and_is_believed() -> None:
    assert identity.owner_of({**CRIO, "io.container.manager": "cri-o"}, "c1").fields() == POD


def test_containerds_annotations_prove_nothing_under_crio() -> None:
    """CRI-O adds a pod's annotations to its containers': the author may have written them."""
    forged = {**CONTAINERD, "io.kubernetes.cri.sandbox-uid": "uid-2"}
    seen = {**forged, **CRIO, "io.container.manager": "cri-o"}
    assert identity.owner_of(seen, "c1").fields() == POD


def test_a_restarted_container_is_the_same_owner_under_another_id() -> None:
    first, second = identity.owner_of(CONTAINERD, "c1"), identity.owner_of(CONTAINERD, "c2")
    assert (first.key, first.container_id) == ("pod-uid-1.main", "c1")
    assert (second.key, second.container_id) == ("pod-uid-1.main", "c2")


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"io.kubernetes.cri.container-type": "sandbox"}, True),
        ({"io.kubernetes.cri-o.ContainerType": "sandbox"}, True),
        (CONTAINERD, False),
        (CRIO, False),
        ({}, False),
    ],
)
def test_a_pods_sandbox_is_known(annotations: Any, expected: bool) -> None:
    assert identity.is_sandbox(annotations) is expected


@pytest.mark.parametrize(
    "forged",
    [
        {"pod.uid": "uid-2", "sandbox-uid": "uid-2"},
        {"vcuda.io/pod-uid": "uid-2", "vcuda.io/container": "other"},
        {"IO.KUBERNETES.CRI.SANDBOX-UID": "uid-2"},
        # What CRI-O writes means nothing where containerd has spoken.
        {"io.kubernetes.pod.uid": "uid-2", "io.kubernetes.container.name": "other"},
    ],
)
def test_no_other_annotation_changes_it(forged: dict[str, str]) -> None:
    assert identity.owner_of({**forged, **CONTAINERD}, "c1").fields() == POD


@pytest.mark.parametrize(
    "id", ["", ".", "..", ".hidden", "a/b", "../a", "a\nb", "a b", "a\0", "é", "a" * 201, "a:b"]
)
def test_a_container_id_that_is_no_file_name_is_refused(id: str) -> None:
    with pytest.raises(
        VcudaError, match=r"the container id .* cannot name an allocation"
    ) as refused:
        identity.owner_of({}, id)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"io.kubernetes.cri.sandbox-uid": "../../etc"},
        {"io.kubernetes.cri.sandbox-uid": "a\n"},
        {"io.kubernetes.cri.container-name": "a/b"},
        {"io.kubernetes.cri.container-name": "x" * 250},
    ],
)
def test_a_pod_whose_names_are_no_file_names_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(VcudaError, match="pod uid and container name"):
        identity.owner_of({**CONTAINERD, **change}, "c1")


@pytest.mark.parametrize("annotations", [CONTAINERD, CRIO])
def test_a_pod_without_a_containers_name_is_refused(annotations: dict[str, str]) -> None:
    nameless = {key: value for key, value in annotations.items() if "container" not in key.lower()
                or "type" in key.lower()}  # fmt: skip
    with pytest.raises(VcudaError, match="the engine named a pod but no container in it"):
        identity.owner_of(nameless, "c1")
