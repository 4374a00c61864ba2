"""The config.json that `vcuda run` writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.files import write
from vcuda_hook.run import spec
from vcuda_oci.model.errors import VcudaError


@pytest.mark.parametrize("is_v2", [True, False], ids=["cgroup v2", "cgroup v1"])
def test_a_plain_container_is_denied_every_device_and_has_the_hosts_network(
    is_v2: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(spec, "is_pure_cgroup_v2", lambda: is_v2)
    made = spec.plain(
        "box", "/vcuda-box.7.9", "/root", ["true"], ["A=b"], [("/src", "/dst", True)], "/", False
    )
    linux = made["linux"]
    assert linux["resources"]["devices"] == [{"allow": False, "access": "rwm"}]
    kinds = {namespace["type"] for namespace in linux["namespaces"]}
    assert kinds == {"mount", "pid", "ipc", "uts"} | ({"cgroup"} if is_v2 else set())
    assert made["process"]["env"][-1] == "A=b"
    assert {"/proc/kcore", "/sys/firmware"} <= set(linux["maskedPaths"])
    volume = next(mount for mount in made["mounts"] if mount["destination"] == "/dst")
    assert (volume["source"], volume["options"]) == ("/src", ["rbind", "rprivate", "ro"])
    destinations = [mount["destination"] for mount in made["mounts"]]
    assert ("/sys/fs/cgroup" in destinations) == is_v2


def test_bundle_retains_all_but_its_request_and_given_options(tmp_path: Any) -> None:
    config = {
        "root": {"path": "rootfs", "readonly": True},
        "process": {"args": ["old"], "env": ["A=a"], "cwd": "/x", "terminal": True},
        "mounts": [{"destination": "/m", "source": "data", "options": ["rbind"]}],
        "annotations": {"vcuda.io/gpu": "1", "other": "kept"},
        "futureField": {"kept": [1]},
    }
    write(f"{tmp_path}/config.json", json.dumps(config))
    made, lower = spec.from_bundle(str(tmp_path), "/scratch/root", [], ["B=b"], [], False)
    spec.ask(made, {"core": "30"})
    assert lower == f"{tmp_path}/rootfs"
    assert made == {
        "root": {"path": "/scratch/root", "readonly": True},
        "process": {"args": ["old"], "env": ["A=a", "B=b"], "cwd": "/x", "terminal": False},
        "mounts": [{"destination": "/m", "source": f"{tmp_path}/data", "options": ["rbind"]}],
        "annotations": {"other": "kept", "vcuda.io/core": "30"},
        "futureField": {"kept": [1]},
    }


@pytest.mark.parametrize("text", ["[]", "{}", '{"root": {"path": "x"}}', "{"])
def test_invalid_bundle_is_refused_in_one_line(text: str, tmp_path: Any) -> None:
    write(f"{tmp_path}/config.json", text)
    with pytest.raises(VcudaError) as refused:
        spec.from_bundle(str(tmp_path), "/root", [], [], [], False)
    assert "\n" not in str(refused.value)
    assert str(tmp_path) in str(refused.value)
