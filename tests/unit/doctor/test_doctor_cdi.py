"""`vcuda doctor` on stale CDI specifications."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from support.files import write
from vcuda_hook.doctor import cdi_specs
from vcuda_hook.doctor.finding import OK, UNKNOWN, WARNING, Finding


def yaml_of(kind: str, folder: str) -> str:
    """As nvidia-ctk writes it."""
    return f"""---
cdiVersion: 0.5.0
kind: {kind}
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              hostPath: {folder}/dev/nvidia0
containerEdits:
    deviceNodes:
        - path: {folder}/dev/nvidiactl
    hooks:
        - hookName: createContainer
          path: {folder}/bin/nvidia-cdi-hook
          args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib64]
    mounts:
        - hostPath: {folder}/libcuda.so.580.95.05
          containerPath: /usr/lib64/libcuda.so.580.95.05
          options: [ro, nosuid, nodev, bind]
"""


def json_of(kind: str, folder: str, indent: int | None) -> str:
    tree = {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [
            {
                "name": "0",
                "containerEdits": {
                    "deviceNodes": [
                        {"path": "/dev/nvidia0", "hostPath": f"{folder}/dev/nvidia0"},
                        {"path": f"{folder}/dev/nvidiactl"},
                    ],
                    "mounts": [
                        {
                            "hostPath": f"{folder}/libcuda.so.580.95.05",
                            "containerPath": "/usr/lib64/libcuda.so.1",
                            "options": ["ro", "bind"],
                        }
                    ],
                },
            }
        ],
    }
    return json.dumps(tree, indent=indent)


@pytest.fixture
def named(tmp_path: Any) -> str:
    """A folder with all that the specifications name."""
    for name in ("dev/nvidia0", "dev/nvidiactl", "bin/nvidia-cdi-hook", "libcuda.so.580.95.05"):
        write(f"{tmp_path}/root/{name}", "")
    return f"{tmp_path}/root"


@pytest.mark.parametrize("form", ["yaml", "json", "compact json"])
@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("vcuda.io/gpu", "run 'vcuda cdi generate'"),
        ("nvidia.com/gpu", "run 'nvidia-ctk cdi generate --output={}'"),
    ],
)
def test_stale_specification_is_found(
    named: str, tmp_path: Any, form: str, kind: str, hint: str
) -> None:
    text = {
        "yaml": yaml_of(kind, named),
        "json": json_of(kind, named, 2),
        "compact json": json_of(kind, named, None),
    }[form]
    path = write(f"{tmp_path}/cdi/gpu.{form.split()[-1]}", text)
    write(f"{tmp_path}/cdi/other.json", '{"kind": "example.com/nic", "hostPath": "/nowhere"}')

    def found() -> list[Finding]:
        return cdi_specs.stale(cdi_specs.read_host([f"{tmp_path}/cdi", f"{tmp_path}/nowhere"]))

    assert found() == [
        Finding("cdi", OK, f"{kind}; whole GPUs that engines give by it have no record")
    ]
    os.unlink(f"{named}/libcuda.so.580.95.05")
    what = f"is stale: this host has no {named}/libcuda.so.580.95.05"
    assert found() == [Finding("cdi", WARNING, what, path, hint.format(path))]
    os.unlink(f"{named}/dev/nvidia0")
    what = f"is stale: this host has no {named}/dev/nvidia0 and 1 more"
    assert found() == [Finding("cdi", WARNING, what, path, hint.format(path))]


def test_a_hosts_without_specifications_is_well(tmp_path: Any) -> None:
    assert cdi_specs.stale(cdi_specs.read_host([str(tmp_path)])) == [
        Finding("cdi", OK, "no specification for GPUs")
    ]


def test_a_specification_that_cannot_be_read_is_reported(tmp_path: Any) -> None:
    os.mkdir(f"{tmp_path}/gpu.json")
    (found,) = cdi_specs.stale(cdi_specs.read_host([str(tmp_path)]))
    assert found == Finding(
        "cdi",
        UNKNOWN,
        f"cannot be read: [Errno 21] Is a directory: '{tmp_path}/gpu.json'",
        f"{tmp_path}/gpu.json",
        "run it as root",
    )
