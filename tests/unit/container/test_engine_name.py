"""The source of a container's name in an engine's bundle."""

from __future__ import annotations

from typing import Any

import pytest

from vcuda_oci.container import engine_name
from vcuda_oci.container.container import container_of

ID = "c0ffee" * 10 + "beef"
POD = {"io.kubernetes.cri.sandbox-uid": "u", "io.kubernetes.cri.container-name": "main"}
DOCKERS = f"/data/docker/containers/{ID}"


def mounted(*sources: Any) -> dict[str, Any]:
    return {"mounts": [{"destination": "/etc/x", "source": source} for source in sources]}


@pytest.mark.parametrize(
    ("spec", "annotations", "bundle", "expected"),
    [
        ({}, {}, "/b", {}),
        (mounted("proc", f"{DOCKERS}/hosts"), {}, "/b", {"file": f"{DOCKERS}/config.v2.json"}),
        (mounted(f"{DOCKERS}/resolv.conf"), {}, "/b", {"file": f"{DOCKERS}/config.v2.json"}),
        (mounted("/data/docker/containers/another/hosts"), {}, "/b", {}),
        (mounted(f"{ID}/hosts"), {}, "/b", {}),
        ({"mounts": [None, {"source": 5}, {}]}, {}, "/b", {}),
        (
            {},
            {},
            f"/s/overlay-containers/{ID}/userdata",
            {"file": "/s/overlay-containers/containers.json"},
        ),
        ({}, {}, "/s/overlay-containers/another/userdata", {}),
        ({}, {"nerdctl/name": "web"}, "/b", {"name": "web"}),
        ({}, {"nerdctl/name": "\x1b[2J"}, "/b", {}),
        # Of a pod's container, the image.
        (
            {},
            {**POD, "io.kubernetes.cri.image-name": "a.example/b:1"},
            "/b",
            {"image": "a.example/b:1"},
        ),
        ({}, {**POD, "io.kubernetes.cri.image-name": "a b"}, "/b", {}),
        ({}, {**POD, "io.kubernetes.cri-o.ImageName": "of another engine"}, "/b", {}),
        ({}, POD, f"/s/overlay-containers/{ID}/userdata", {}),
        # Under Podman an image may annotate.
        ({}, {"nerdctl/name": "web", "io.podman.annotations.init": "FALSE"}, "/b", {}),
    ],
)
def test_source_of_the_containers_name_is_recorded(
    spec: Any, annotations: dict[str, str], bundle: str, expected: dict[str, str]
) -> None:
    assert (
        engine_name.noted(container_of({**spec, "annotations": annotations}, ID, bundle))
        == expected
    )
