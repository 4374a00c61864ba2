"""Variables, annotations and mounts count as a request only from trusted sources."""

from __future__ import annotations

from typing import Any

import pytest

from unit.container.test_request import annotated, mounted, with_env
from vcuda_oci.container import request
from vcuda_oci.container.container import container_of
from vcuda_oci.model.errors import VcudaError


@pytest.mark.parametrize(
    ("spec", "setting", "is_pod", "privileged", "expected"),
    [
        (annotated(core="1"), "never", True, True, True),
        (annotated(core="1"), "never", False, False, True),
        (with_env("VCUDA_CORE=1"), "never", False, False, False),
        (with_env("VCUDA_CORE=1"), "unprivileged", False, False, True),
        (with_env("VCUDA_CORE=1"), "always", False, True, True),
        (with_env("VCUDA_CORE=1"), "never", True, False, False),
        (with_env("VCUDA_CORE=1"), "unprivileged", True, False, False),
        (with_env("VCUDA_CORE=1"), "always", True, False, False),
        (with_env("VCUDA_CORE=1"), "unprivileged", True, True, False),
        (with_env("NVIDIA_VISIBLE_DEVICES=all"), "unprivileged", False, True, False),
        (with_env("NVIDIA_VISIBLE_DEVICES=all"), "always", False, True, True),
        (with_env("NVIDIA_VISIBLE_DEVICES=all"), "unprivileged", False, False, True),
    ],
)
def test_env_counts_only_where_the_settings_let_it(
    spec: Any, setting: str, is_pod: bool, privileged: bool, expected: bool
) -> None:
    raw = request.find(container_of(spec))
    assert raw
    assert request.counts(raw, setting, is_pod, privileged) is expected


@pytest.mark.parametrize(("setting", "expected"), [("never", False), ("unprivileged", True)])
def test_an_annotation_that_an_image_may_have_made_counts_as_its_env_does(
    setting: str, expected: bool
) -> None:
    annotations = {"vcuda.io/core": "30", "io.container.manager": "libpod"}
    raw = request.find(container_of({"annotations": annotations}))
    assert raw
    assert request.counts(raw, setting, is_pod=False, privileged=False) is expected


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ('{"vcuda.io/request.vcuda-core":"30"}', {"request.vcuda-core": "30"}),
        ("{}", None),
        ("null", None),
        ("no JSON", None),
        (None, None),
    ],
)
def test_under_crio_only_the_containers_own_annotations_ask(own: str | None, expected: Any) -> None:
    """CRI-O adds the pod's annotations, which its author writes, to config.json too."""
    annotations = {
        "io.container.manager": "cri-o",
        "io.kubernetes.pod.uid": "uid-1",
        # The pod's author may forge containerd's annotations.
        "io.kubernetes.cri.sandbox-uid": "uid-1",
        "vcuda.io/request.vcuda-core": "30",
        "vcuda.io/core": "100",
    }
    if own is not None:
        annotations["io.kubernetes.cri-o.Annotations"] = own
    linux = {"cgroupsPath": "/kubepods/crio-4d2f"}
    found = request.find(container_of({"annotations": annotations, "linux": linux}))
    assert (found.words if found else None) == expected


def test_container_claimed_by_two_engines_requests_nothing() -> None:
    """An image under Podman forges CRI-O's annotations, or a pod's author under CRI-O Podman's."""
    annotations = {
        "io.container.manager": "cri-o",
        "io.podman.annotations.init": "FALSE",
        "io.kubernetes.pod.uid": "uid-1",
        "vcuda.io/core": "100",
    }
    spec = {"annotations": annotations, "process": {"env": ["VCUDA_CORE=100"]}}
    assert request.find(container_of(spec)) is None


@pytest.mark.parametrize("word", ["VCUDA_CORE=30", "VCUDA_GPU=0"])
def test_a_privileged_container_that_asks_by_env_is_refused(word: str) -> None:
    raw = request.find(container_of(with_env(word)))
    assert raw
    with pytest.raises(VcudaError, match="a privileged container sees every GPU"):
        request.counts(raw, "unprivileged", is_pod=False, privileged=True)


NOTHING = {"allow": False, "access": "rwm"}
EVERYTHING = {"allow": True, "access": "rwm"}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([NOTHING], False),
        ([NOTHING, {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"}], False),
        ([NOTHING, {"allow": True, "type": "c", "access": "m"}], False),
        ([NOTHING, {"allow": True, "type": "b", "access": "rwm"}], False),
        ([EVERYTHING], True),
        ([NOTHING, EVERYTHING], True),
        ([EVERYTHING, NOTHING], False),
        ([{"allow": True}], True),
        ([{"allow": True, "type": "a", "major": None, "minor": None, "access": "rw"}], True),
        ([{"allow": True, "type": "a", "major": -1, "minor": -1, "access": "rwm"}], True),
        ([{"allow": True, "type": "c", "access": "rwm"}], True),
        ([None, 1, "x", []], False),
    ],
)
def test_a_privileged_container_is_known_by_its_device_rules(rules: Any, expected: bool) -> None:
    spec = {"linux": {"resources": {"devices": rules}}}
    assert container_of(spec).sees_every_device is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/run/vcuda/requests/vcuda-core/30", True),
        ("/data/vcuda/requests/vcuda-core/30", True),
        ("/home/requests/vcuda-core/30", False),
        ("/run/vcuda/requests/vcuda-memory/30", False),
        ("/run/vcuda/requests/vcuda-core/../vcuda-core/30", False),
        ("/dev/null", False),
    ],
)
def test_a_mount_asks_only_when_it_is_the_agents_own(source: str, expected: bool) -> None:
    raw = request.find(container_of(mounted(("vcuda-core", source))))
    assert raw
    # Where the engine resolves the link that the state folder is.
    assert request.has_agent_sources(raw, ("/run/vcuda", "/data/vcuda")) == expected
