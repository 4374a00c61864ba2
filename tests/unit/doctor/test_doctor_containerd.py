"""`vcuda doctor` on containerd's configuration: the annotations that reach the runtime."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from support.files import script
from support.host.engine_files import ALL_OK, OURS, containerd, found_below, known
from support.needed import skip_or_fail
from vcuda_hook.doctor.finding import ERROR, OK, WARNING, Finding
from vcuda_hook.engines import engine_settings


@pytest.fixture
def wrapper(tmp_path: Any) -> str:
    return script(f"{tmp_path}/usr/bin/vcuda-container-runtime", "#!/bin/sh\n")


@pytest.fixture
def found(tmp_path: Any, monkeypatch: Any) -> Callable[[dict[str, str]], list[Finding]]:
    monkeypatch.setenv("PATH", f"{tmp_path}/programs")
    return lambda files: found_below(str(tmp_path), files)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    ("annotations", "dropped"),
    [
        ("", ["core", "memory"]),
        ("container_annotations = []", ["core", "memory"]),
        ('container_annotations = ["tencent.com/*", "*"]', ["core", "memory"]),
        ('container_annotations = ["vcuda.io/request.vcuda-core"]', ["memory"]),
        ('container_annotations = [\n "vcuda.io/request.*",  # both\n]', []),
        ('container_annotations = ["*/*"]', []),
        (OURS, []),
    ],
)
def test_requests_that_containerd_drops_are_found(
    found: Any, wrapper: str, tmp_path: Any, version: int, annotations: str, dropped: list[str]
) -> None:
    answer = found({"/etc/containerd/config.toml": containerd(wrapper, annotations, version)})
    keys = " and ".join(f"vcuda.io/request.vcuda-{each}" for each in dropped)
    assert [each for each in answer if each.name == "dropped-annotations"] == [
        Finding(
            "dropped-annotations",
            ERROR,
            f"containerd drops {keys} before 'vcuda' sees it",
            f"{tmp_path}/etc/containerd/config.toml",
            'set container_annotations = ["vcuda.io/*"]: edit the file, then restart containerd',
        )
        if dropped
        else ALL_OK["dropped-annotations"]
    ]


@pytest.mark.parametrize(
    ("pod_annotations", "named"),
    [
        (["vcuda.io/*"], "vcuda.io/*"),
        (["example.com/*", "*/core"], "*/core"),
        (["example.com/*", "*", "vcuda.io/note"], ""),
        ([], ""),
    ],
)
def test_pods_that_can_ask_past_the_device_plugin_are_found(
    found: Any, wrapper: str, tmp_path: Any, pod_annotations: list[str], named: str
) -> None:
    text = containerd(wrapper, f"{OURS}\n    pod_annotations = {json.dumps(pod_annotations)}")
    answer = found({"/etc/containerd/config.toml": text})
    assert answer[-2] == (
        Finding(
            "pod-annotations",
            WARNING,
            f"'vcuda' lets a pod's author ask past the device plugin, by pod_annotations {named}",
            f"{tmp_path}/etc/containerd/config.toml",
            "take it out of pod_annotations: edit the file, then restart containerd",
        )
        if named
        else ALL_OK["pod-annotations"]
    )


def test_what_containerd_imports_counts(found: Any, wrapper: str) -> None:
    answer = found(
        {
            "/etc/containerd/config.toml": 'version = 3\nimports = ["conf.d/*.toml", "*.toml"]\n',
            "/etc/containerd/conf.d/vcuda.toml": containerd(wrapper, OURS, version=3),
        }
    )
    assert answer == known("containerd")


def test_containerds_own_default_file_is_read(found: Any, tmp_path: Any) -> None:
    program = shutil.which("containerd", path="/usr/bin:/usr/local/bin")
    if program is None:
        skip_or_fail("containerd is not installed")
    default = subprocess.run([program, "config", "default"], stdout=subprocess.PIPE, check=True)
    answer = found({"/etc/containerd/config.toml": default.stdout.decode()})
    assert [each.name for each in answer if each.severity != OK] == ["engine-runtimes"]
    (engine,) = engine_settings.read(str(tmp_path))
    assert (engine.default, sorted(engine.handlers)) == ("runc", ["runc"])


RUNC = '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]\n'
OURS_TOO = RUNC.replace("runc", "vcuda")


@pytest.mark.parametrize(
    ("drop_in", "is_wrong"),
    [
        ("", False),
        (RUNC + "SystemdCgroup = true\n", True),
        (RUNC + "SystemdCgroup = true\n" + OURS_TOO + "SystemdCgroup = true\n", False),
        (RUNC + "SystemdCgroup = false\n", False),
    ],
    ids=["neither", "runc alone", "both", "said to be off"],
)
def test_a_handler_with_another_cgroup_driver_than_runcs_is_found(
    found: Any, wrapper: str, tmp_path: Any, drop_in: str, is_wrong: bool
) -> None:
    path = "/etc/containerd/config.toml"
    files = {
        path: f'imports = ["{tmp_path}/etc/containerd/conf.d/*.toml"]\n'
        + containerd(wrapper, OURS, 3),
        "/etc/containerd/conf.d/10-cgroups.toml": drop_in,
    }
    wrong = Finding(
        "engine-runtimes",
        ERROR,
        "containerd's runtime 'vcuda' has no SystemdCgroup = true, and 'runc' has: its containers "
        "run outside their pods' cgroups, without the pods' limits",
        f"{tmp_path}{path}",
        "run 'vcuda configure containerd', then restart containerd",
    )
    expected = [wrong, *ALL_OK.values()] if is_wrong else known("containerd")[1:]
    assert found(files)[1:] == expected
