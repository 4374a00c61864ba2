"""An image as a tar that containerd imports: an OCI layout with one layer."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

OCI = "application/vnd.oci.image."


def write(
    path: str,
    layer_path: str,
    name: str,
    *,
    command: Sequence[str] = ("sleep", "infinity"),
    env: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Pack the layer (an uncompressed tar) as image `name`, such as `docker.io/library/x:1`.

    Source: image-spec image-layout.md, and config.md, "Properties".
    """
    with open(layer_path, "rb") as file:
        layer = file.read()
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **(env or {})}
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Cmd": list(command),
                "Env": [f"{key}={value}" for key, value in variables.items()],
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": OCI + "manifest.v1+json",
            "config": _descriptor(OCI + "config.v1+json", config),
            "layers": [_descriptor(OCI + "layer.v1.tar", layer)],
            "annotations": dict(annotations or {}),
        }
    )
    entry = _descriptor(OCI + "manifest.v1+json", manifest)
    entry["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name,
    }
    index = _json({"schemaVersion": 2, "manifests": [entry]})
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", index)
        for blob in (config, manifest, layer):
            _add(tar, "blobs/" + _digest(blob).replace(":", "/"), blob)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _add(tar: tarfile.TarFile, name: str, blob: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(blob)
    tar.addfile(member, io.BytesIO(blob))
