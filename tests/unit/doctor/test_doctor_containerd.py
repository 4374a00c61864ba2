"""`vcuda doctor` on containerd's configuration: what reaches the runtime."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from support.files import script, write
from support.host.engine_files import ALL_OK, OURS, containerd, found_below, known
from support.needed import skip_or_fail
from vcuda_hook.doctor.finding import ERROR, OK, UNKNOWN, WARNING, Finding
from vcuda_hook.engines import engine_settings


@pytest.fixture
def wrapper(tmp_path: Any) -> str:
    return script(f"{tmp_path}/usr/bin/vcuda-container-runtime", "#!/bin/sh\n")


@pytest.fixture
def found(tmp_path: Any, monkeypatch: Any) -> Callable[..., list[Finding]]:
    monkeypatch.setenv("PATH", f"{tmp_path}/programs")
    return lambda files, by_dra=False: found_below(str(tmp_path), files, by_dra)


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
    (about_pods,) = [each for each in answer if each.name == "pod-annotations"]
    assert about_pods == (
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


CONFIG = "/etc/containerd/config.toml"
OLD, NEW = '[plugins."io.containerd.grpc.v1.cri"]\n', '[plugins."io.containerd.cri.v1.runtime"]\n'
OFF, ON = "enable_cdi = false\n", "enable_cdi = true\n"
DOCKERS = 'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
NO_GPU = "pods with claims start without their GPUs"


def about_cdi(findings: list[Finding]) -> tuple[str, str, str, str]:
    (one,) = [each for each in findings if each.name == "containerd-cdi"]
    return one.severity, one.what, one.where, one.hint


@pytest.mark.parametrize(
    ("text", "dump", "is_on"),
    [
        ("version = 2\n", "version = 2\n" + OLD + OFF, False),
        ("version = 2\n" + OLD + ON, "version = 2\n" + OLD + ON, True),
        ("version = 3\n" + NEW + OFF, "version = 4\n" + NEW + OFF, False),
        ("version = 2\n" + OLD + OFF, "version = 4\n" + NEW + OFF, False),
        ("version = 3\n", "version = 4\n" + NEW + ON, True),
        (DOCKERS, DOCKERS + "version = 2\n" + OLD + OFF, True),
    ],
    ids=["1.7", "1.7 on", "2 off", "2 off, older file", "2", "no CRI plugin"],
)
def test_containerd_that_ignores_claims_devices_is_found(
    found: Any, tmp_path: Any, text: str, dump: str, is_on: bool
) -> None:
    path, printed = f"{tmp_path}{CONFIG}", write(f"{tmp_path}/printed", dump)
    asks = f'[ "$*" = "--config {path} config dump" ]'
    script(f"{tmp_path}/programs/containerd", f"#!/bin/sh -e\n{asks}\n/bin/cat {printed}\n")
    table = (NEW if "version = 3" in text else OLD).strip()
    wrong = (
        ERROR,
        f"containerd's enable_cdi is false: {NO_GPU}",
        path,
        f"set enable_cdi = true in {table}: edit the file, then restart containerd",
    )
    well = (OK, "containerd drops no claim's GPU", "", "")
    assert about_cdi(found({CONFIG: text}, by_dra=True)) == (well if is_on else wrong)
    assert about_cdi(found({})) == well


def test_file_that_replaces_the_cri_plugins_table_is_named(found: Any, tmp_path: Any) -> None:
    printed = write(f"{tmp_path}/printed", "version = 2\n" + OLD + OFF)
    script(f"{tmp_path}/programs/containerd", f"#!/bin/sh\n/bin/cat {printed}\n")
    files = {
        CONFIG: 'version = 2\nimports = ["conf.d/*.toml"]\n' + OLD + ON,
        "/etc/containerd/conf.d/cni.toml": "version = 2\n" + OLD + 'sandbox_image = "x"\n',
    }
    where = f"{tmp_path}/etc/containerd/conf.d/cni.toml"
    assert about_cdi(found(files, by_dra=True))[::2] == (ERROR, where)


def test_containerd_beside_crio_is_a_warning_since_the_kubelet_may_use_either(
    found: Any, tmp_path: Any
) -> None:
    printed = write(f"{tmp_path}/printed", "version = 2\n" + OLD + OFF)
    script(f"{tmp_path}/programs/containerd", f"#!/bin/sh\n/bin/cat {printed}\n")
    files = {CONFIG: "version = 2\n", "/etc/crio/crio.conf": "[crio]\n"}
    assert about_cdi(found(files, by_dra=True))[0] == WARNING


def test_containerd_that_cannot_be_asked_is_unknown(found: Any, tmp_path: Any) -> None:
    path = f"{tmp_path}{CONFIG}"
    assert about_cdi(found({CONFIG: "version = 2\n"}, by_dra=True)) == (
        UNKNOWN,
        f"not known whether it sets enable_cdi, without which {NO_GPU}",
        path,
        f"run 'containerd --config {path} config dump' to see why",
    )


@pytest.mark.parametrize("value", ["no file", "", OFF, ON])
def test_genuine_containerd_says_whether_it_injects_devices(
    found: Any, tmp_path: Any, value: str
) -> None:
    """The one in the folder CONTAINERD, else the distribution's."""
    program = shutil.which("containerd", path=os.environ.get("CONTAINERD", "/usr/bin"))
    if program is None:
        skip_or_fail("containerd is not installed")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = tuple(map(int, said.stdout.split()[2].lstrip("v").split(".")[:2]))
    os.makedirs(f"{tmp_path}/programs")
    os.symlink(program, f"{tmp_path}/programs/containerd")
    answer = about_cdi(
        found({} if value == "no file" else {CONFIG: "version = 2\n" + OLD + value}, by_dra=True)
    )
    older = f"containerd is older than 1.7: {NO_GPU}"
    hint = "install containerd 1.7 or later, or offer GPUs by the device plugin"
    if version < (1, 7):
        assert answer == (ERROR, older, "", hint)
    else:
        is_on = value == ON or (version >= (2, 0) and value != OFF)
        assert answer[0] == (OK if is_on else ERROR)
