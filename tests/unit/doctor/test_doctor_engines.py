"""`vcuda doctor` on engines' configuration files, laid out as engines read them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.files import script
from support.host.engine_files import ALL_OK, OURS, containerd, found_below, known
from vcuda_hook.doctor.finding import ERROR, INFO, OK, WARNING, Finding


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Where any user comes: the checkout, and pytest's folder in it, may be root's alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


NVIDIA = "/usr/bin/nvidia-container-runtime"


@pytest.fixture
def wrapper(tmp_path: Any) -> str:
    return script(f"{tmp_path}/usr/bin/vcuda-container-runtime", "#!/bin/sh\n")


@pytest.fixture
def found(tmp_path: Any, monkeypatch: Any) -> Callable[[dict[str, str]], list[Finding]]:
    monkeypatch.setenv("PATH", f"{tmp_path}/programs")
    return lambda files: found_below(str(tmp_path), files)


def crio(wrapper: str) -> str:
    return f'[crio.runtime.runtimes.vcuda]\nruntime_path = "{wrapper}"\nruntime_type = "oci"\n'


def test_a_host_without_an_engine_has_nothing_to_repair(found: Any) -> None:
    assert found({}) == known()


def test_engines_that_know_the_runtime_are_well(found: Any, wrapper: str) -> None:
    docker = {"runtimes": {"vcuda": {"path": wrapper}, "nvidia": {"path": NVIDIA}}}
    files = {
        "/etc/docker/daemon.json": json.dumps(docker),
        "/etc/containerd/config.toml": containerd(wrapper, OURS),
        "/etc/crio/crio.conf": '[crio.runtime]\ndefault_runtime = "crun"\n',
        "/etc/crio/crio.conf.d/99-vcuda.conf": crio(wrapper),
        "/etc/containers/containers.conf": "[containers]\nulimits = []\n",
        "/etc/containers/containers.conf.d/99-vcuda.conf": (
            f'[engine.runtimes]\nvcuda = ["/nowhere/vcuda-container-runtime", "{wrapper}"]\n'
        ),
    }
    assert found(files) == known("docker", "containerd", "crio", "podman")


def test_an_engine_that_calls_the_hook_is_well(found: Any) -> None:
    hook = '{"version": "1.0.0", "hook": {"path": "/usr/bin/vcuda-container-hook"}}'
    files = {
        "/etc/containers/containers.conf": "[engine]\n",
        "/usr/share/containers/oci/hooks.d/vcuda.json": hook,
    }
    assert found(files) == known("podman")


def test_a_hook_is_found_where_systemd_replaces_its_rules(found: Any, tmp_path: Any) -> None:
    hooks = "/usr/share/containers/oci/hooks.d/vcuda.json"
    files = {
        "/etc/containers/containers.conf": "[engine]\n",
        hooks: '{"version": "1.0.0", "hook": {"path": "/usr/bin/vcuda-container-hook"}}',
        "/sys/fs/cgroup/cgroup.controllers": "memory pids\n",
    }
    assert found(files) == known("podman")
    os.makedirs(f"{tmp_path}/run/systemd/system")
    (findings,) = [each for each in found(files) if each.name == "hook-and-systemd"]
    what = "'systemctl daemon-reload' takes the GPU from containers that podman's hook serves"
    assert (findings.severity, findings.what.split(",")[0]) == (WARNING, what)
    assert findings.where == f"{tmp_path}{hooks}"
    assert (
        findings.hint == "run 'vcuda configure podman --hooks --undo' and 'vcuda configure podman'"
    )


def test_an_engine_that_does_not_know_the_runtime_is_reported(found: Any, tmp_path: Any) -> None:
    script(f"{tmp_path}/programs/dockerd", "#!/bin/sh\n")
    answer = found({"/etc/containerd/config.toml": "version = 2\n"})
    assert answer == [
        Finding("engine-settings", OK, "docker, containerd"),
        *(
            Finding(
                "engine-runtimes",
                INFO,
                f"{engine} does not know vcuda's runtime",
                hint=f"run 'vcuda configure {engine}' to share GPUs there",
            )
            for engine in ("docker", "containerd")
        ),
        *ALL_OK.values(),
    ]


def test_a_runtime_that_is_no_program_is_found(found: Any, tmp_path: Any) -> None:
    gone = f"{tmp_path}/gone/vcuda-container-runtime"
    answer = found({"/etc/docker/daemon.json": json.dumps({"runtimes": {"v": {"path": gone}}})})
    assert answer[1:] == [
        Finding(
            "engine-runtimes",
            ERROR,
            f"docker's runtime 'v' is {gone}, no program",
            f"{tmp_path}/etc/docker/daemon.json",
            "write the wrapper's path: edit the file, then restart docker",
        ),
        *ALL_OK.values(),
    ]


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        (
            "/etc/docker/daemon.json",
            '{"runtimes": {,}}',
            "Expecting property name enclosed in double quotes: line 1 column 15 (char 14)",
        ),
        ("/etc/containerd/config.toml", "version = \n", None),
        ("/etc/crio/crio.conf.d/9.conf", "[crio\n", None),
    ],
)
def test_a_file_that_an_engine_cannot_read_is_found(
    found: Any, tmp_path: Any, path: str, text: str, reason: str | None
) -> None:
    first, *others = found({path: text})
    assert (first.name, first.severity, first.where, first.hint) == (
        "engine-settings",
        ERROR,
        f"{tmp_path}{path}",
        "correct it, or remove it",
    )
    assert first.what == f"cannot be read: {reason}" if reason else first.what
    assert {each.severity for each in others} == {OK}


@pytest.mark.parametrize(
    ("engine", "path", "text", "restart"),
    [
        (
            "docker",
            "/etc/docker/daemon.json",
            json.dumps({"default-runtime": "gpu", "runtimes": {"gpu": {"path": NVIDIA + ".cdi"}}}),
            ", then restart docker",
        ),
        (
            "docker",
            "/etc/docker/daemon.json",
            json.dumps({"default-runtime": "nvidia"}),
            ", then restart docker",
        ),
        (
            "containerd",
            "/etc/containerd/config.toml",
            containerd("/usr/bin/nvidia-container-runtime", "", default="vcuda"),
            ", then restart containerd",
        ),
        (
            "crio",
            "/etc/crio/crio.conf.d/99-nvidia.conf",
            '[crio]\n[crio.runtime]\ndefault_runtime = "nvidia"\n[crio.runtime.runtimes.nvidia]\n'
            f'runtime_path = "{NVIDIA}"\n',
            ", then restart crio",
        ),
        (
            "podman",
            "/etc/containers/containers.conf",
            f'[engine]\nruntime = "nvidia"\n[engine.runtimes]\nnvidia = ["{NVIDIA}"]\n',
            "",
        ),
    ],
    ids=["docker", "docker, by name", "containerd", "crio", "podman"],
)
def test_nvidias_runtime_as_the_default_is_found(
    found: Any, tmp_path: Any, engine: str, path: str, text: str, restart: str
) -> None:
    answers = [each for each in found({path: text}) if each.name == "nvidia-default"]
    assert answers == [
        Finding(
            "nvidia-default",
            WARNING,
            f"NVIDIA's runtime is {engine}'s default: a container that names no runtime "
            "gets whole GPUs, past every share",
            f"{tmp_path}{path}",
            f"make runc the default: edit the file{restart}",
        )
    ]


def test_the_last_file_that_names_a_default_counts(found: Any, wrapper: str) -> None:
    nvidia = '[crio.runtime]\ndefault_runtime = "nvidia"\n'
    files = {
        "/etc/crio/crio.conf": nvidia + crio(wrapper),
        "/etc/crio/crio.conf.d/10-nvidia.conf": nvidia,
        "/etc/crio/crio.conf.d/20-crun.conf": '[crio.runtime]\ndefault_runtime = "crun"\n',
    }
    assert found(files) == known("crio")


@pytest.mark.parametrize("program", ["nvidia-container-runtime-hook", "nvidia-container-toolkit"])
def test_nvidias_own_hook_is_found(found: Any, tmp_path: Any, program: str) -> None:
    folder = "/usr/share/containers/oci/hooks.d"
    hook = {"version": "1.0.0", "hook": {"path": f"/usr/bin/{program}", "args": [program]}}
    ours = {"version": "1.0.0", "hook": {"path": "/usr/bin/vcuda-container-hook"}}
    files = {
        f"{folder}/oci-nvidia-hook.json": json.dumps(hook),
        f"{folder}/vcuda.json": json.dumps(ours),
    }
    assert [each for each in found(files) if each.name == "nvidia-default"] == [
        Finding(
            "nvidia-default",
            WARNING,
            "NVIDIA's hook gives whole GPUs, past every share, to each image that names some",
            f"{tmp_path}{folder}/oci-nvidia-hook.json",
            "remove the file",
        )
    ]


@pytest.mark.parametrize("text", ["[]", '"x"', '{"runtimes": [], "default-runtime": {}}', ""])
def test_files_of_odd_shapes_are_no_crash(found: Any, text: str) -> None:
    answer = found({"/etc/docker/daemon.json": text})
    assert [(each.name, each.severity) for each in answer if each.severity != OK] == [
        ("engine-runtimes", INFO)
    ]
