"""The wrapper from its launcher to the low-level runtime, without an engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from support.files import mode_of, write
from support.gpu.driver_root import VERSION
from support.ledger.samples import shares_of
from support.wrapper.wrapper_node import (
    CONTAINERD,
    ENV,
    HALF,
    HALF_SHARE,
    SPEC,
    Node,
    asking,
    by_env,
)
from vcuda_oci.pages.page_reader import read_limits


def test_a_request_becomes_a_record_and_an_edited_config(node: Node) -> None:
    options = ["--root", "/r", "--log", node.folder + "/log", "--debug"]
    assert node.create(asking(), *options) == (0, "")
    spec, lib = node.edited(), node.installed.prefix + "/lib/vcuda"
    assert {key: spec[key] for key in ("ociVersion", "process", "root", "annotations")} == {
        key: asking()[key] for key in ("ociVersion", "process", "root", "annotations")
    }
    assert spec["linux"]["newField"] == [1, {"kept": None}]
    assert [
        (found["path"], found["major"], found["minor"]) for found in spec["linux"]["devices"]
    ] == [
        ("/dev/nvidia0", 195, 0),
        ("/dev/nvidiactl", 195, 255),
        ("/dev/nvidia-uvm", 510, 0),
        ("/dev/nvidia-uvm-tools", 510, 1),
    ]
    mounts = {mount["destination"]: mount["source"] for mount in spec["mounts"]}
    folder, own = node.driver.folder, "/usr/local/vcuda"
    assert mounts == {
        "/usr/lib64/libcuda.so": lib + "/libvcuda.so.1",
        "/usr/lib64/libcuda.so.1": lib + "/libvcuda.so.1",
        f"/usr/lib64/libcuda.so.{VERSION}": lib + "/libvcuda.so.1",
        "/usr/lib64/libnvidia-ml.so.1": lib + "/libvcuda.so.1",
        f"/usr/lib64/libnvidia-ml.so.{VERSION}": lib + "/libvcuda.so.1",
        own + "/driver/cuda": f"{folder}/libcuda.so.{VERSION}",
        own + "/driver/nvml": f"{folder}/libnvidia-ml.so.{VERSION}",
        "/usr/bin/nvidia-smi": node.driver.path + "/usr/bin/nvidia-smi",
        own + "/limits": f"{node.ledger.containers}/box/limits",
        own + "/usage": f"{node.ledger.containers}/box/usage",
    }
    assert "hooks" not in spec  # the launcher sees the container's delete
    held = node.ledger.get("box")
    assert held
    assert (held.shares, held.runtime) == (HALF_SHARE, [node.runtime.path, "--root", "/r"])
    assert mode_of(node.config) == 0o640
    assert sorted(os.listdir(node.bundle)) == ["config.json", "rootfs"]
    assert not os.path.exists(node.folder + "/log")


def test_a_container_without_a_delete_through_the_launcher_gets_a_poststop_hook(node: Node) -> None:
    """A `run` deletes by itself; a pod's container keeps its share, and its end is told."""
    pod = asking({**CONTAINERD, **HALF})
    for verb, spec, holder in (("run", asking(), "box"), ("create", pod, "pod-uid1.main")):
        write(node.config, json.dumps(spec))
        ran = node.installed.call(verb, "--bundle", node.bundle, "box", env=ENV)
        assert (ran.returncode, ran.stderr) == (0, b"")
        hook = node.installed.prefix + "/bin/vcuda-container-hook"
        assert [found["args"] for found in node.edited()["hooks"]["poststop"]] == [
            [hook, "--config", node.installed.settings, "poststop", holder]
        ]


def test_the_copy_metering_setting_reaches_the_next_container(node: Node) -> None:
    for setting, metered in (("no", False), ("yes", True)):
        node.configure(meter_copies=setting)
        assert node.create(asking(), id=setting) == (0, "")
        with open(f"{node.ledger.containers}/{setting}/limits", "rb") as page:
            assert read_limits(page.read()).meter_copies == metered


def test_the_runtime_gets_the_callers_arguments_env_and_signals(node: Node) -> None:
    """LC_ALL is unset: Python sets LC_CTYPE for itself then, and ignores SIGPIPE."""
    assert node.create(asking(), "--systemd-cgroup") == (0, "")
    words = ["--systemd-cgroup", "create", "--bundle", node.bundle, "box"]
    [(argv, environ, ignored)] = node.runtime.calls()
    assert argv == [node.runtime.path, *words]
    assert environ == [f"{key}={value}" for key, value in ENV.items()]
    assert ignored & (1 << (signal.SIGPIPE - 1)) == 0
    assert ignored & (1 << (signal.SIGXFSZ - 1)) == 0


def test_runtime_inherits_no_open_file(node: Node) -> None:
    script = write(node.folder + "/list", f"#!/bin/sh\nls /proc/$$/fd >{node.folder}/fds\n", 0o755)
    node.configure(runtime=script)
    assert node.create(asking()) == (0, "")
    with open(node.folder + "/fds") as file:
        fds = file.read().split()
    # Those from 10 on are the shell's own, for its script and its redirection.
    assert {fd for fd in fds if len(fd) == 1} == {"0", "1", "2"}


def test_a_request_by_env_counts(node: Node) -> None:
    assert node.create(by_env("VCUDA_CORE=50", "VCUDA_MEMORY=4GiB")) == (0, "")
    assert shares_of(node.ledger) == {"box": HALF_SHARE}


def test_restarted_pod_gets_its_share_by_the_engines_identity(node: Node) -> None:
    for id in ("c1", "c2"):
        assert node.create(asking({**CONTAINERD, **HALF}), id=id) == (0, "")
        assert shares_of(node.ledger) == {"pod-uid1.main": HALF_SHARE}
        held = node.ledger.get("pod-uid1.main")
        assert held
        assert held.container_id == id


def test_a_second_create_from_the_same_bundle_edits_once(node: Node) -> None:
    assert node.create(asking()) == (0, "")
    first = node.edited()
    assert node.create(first) == (0, "")
    assert node.edited() == first


def test_two_concurrent_creates_of_one_bundle_leave_a_valid_config(node: Node) -> None:
    node.create(asking())
    expected = node.edited()
    words = [node.installed.launcher, "create", "--bundle", node.bundle, "box"]
    for _ in range(5):
        write(node.config, json.dumps(asking()))
        both = [subprocess.Popen(words, env=ENV, stderr=subprocess.PIPE) for _ in range(2)]
        answers = [process.communicate()[1] for process in both]
        assert [process.returncode for process in both].count(0) >= 1
        assert all(b"Traceback" not in answer for answer in answers)
        assert node.edited() == expected
        assert sorted(os.listdir(node.bundle)) == ["config.json", "rootfs"]


def test_a_config_behind_a_symlink_is_edited_in_the_bundle_only(node: Node) -> None:
    template = write(node.folder + "/template.json", json.dumps(asking()), 0o640)
    os.symlink(template, node.config)
    ran = node.installed.call("create", "--bundle", node.bundle, "box", env=ENV)
    assert (ran.returncode, ran.stderr) == (0, b"")
    with open(template) as file:
        assert json.load(file) == asking()
    assert not os.path.islink(node.config)
    assert node.edited()["mounts"]
    assert mode_of(node.config) == 0o640


SANDBOX = {**CONTAINERD, **HALF, "io.kubernetes.cri.container-type": "sandbox"}
BAD_SETTINGS = "runtme = 'x'\n"


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        (SPEC, {}),
        (asking(SANDBOX), {}),
        (asking({"vcuda.io/use-gpu-uuid": "x"}), {}),
        (asking(CONTAINERD, "VCUDA_SERVICE_HOST=10.0.0.1"), {"accept_request_from_env": "always"}),
        (by_env("VCUDA_CORES=50"), {"accept_request_from_env": "never"}),
        (by_env("VCUDA_CORE=50"), {"accept_request_from_env": "never"}),
        (by_env("NVIDIA_VISIBLE_DEVICES=void"), {}),
        (asking(CONTAINERD, "VCUDA_CORE=50"), {"accept_request_from_env": "always"}),
        (asking(CONTAINERD, "NVIDIA_VISIBLE_DEVICES=all"), {}),
        (json.dumps(asking(CONTAINERD, "NVIDIA_VISIBLE_DEVICES=all"), indent=3), {}),
        (
            {
                **by_env("NVIDIA_VISIBLE_DEVICES=all"),
                "linux": {"resources": {"devices": [{"allow": True, "access": "rwm"}]}},
            },
            {},
        ),
        ('["vcuda"]', {}),
    ],
    ids=[
        "no request",
        "a sandbox",
        "an annotation that is none",
        "the variables of a pod beside a service named vcuda",
        "a slip where env never counts",
        "env never counts",
        "void",
        "a pod's env",
        "a pod of a CUDA image",
        "the same, in another layout",
        "a privileged container of a CUDA image",
        "no object",
    ],
)
def test_a_container_without_a_request_that_counts_notices_nothing(
    node: Node, spec: Any, settings: dict[str, str]
) -> None:
    node.configure(**settings)
    assert node.create(spec) == (0, "")
    with open(node.config) as file:
        assert file.read() == (spec if isinstance(spec, str) else json.dumps(spec))
    assert len(node.runtime.calls()) == 1
    # The agent's page keeper makes the folder, empty.
    assert not os.path.exists(node.ledger.allocations) or not os.listdir(node.ledger.allocations)


@pytest.mark.parametrize(
    "spec", [SPEC, asking(SANDBOX), asking(CONTAINERD, "NVIDIA_VISIBLE_DEVICES=all")]
)
def test_a_mistake_in_the_settings_stops_no_container_that_asked_for_nothing(
    node: Node, spec: Any
) -> None:
    with open(node.installed.settings, "a") as file:
        file.write(BAD_SETTINGS)
    assert node.create(spec) == (0, "")
    assert len(node.runtime.calls()) == 1


def test_an_odd_container_id_matters_only_to_a_request_that_counts(node: Node) -> None:
    node.configure(accept_request_from_env="never")
    assert node.create(by_env("NVIDIA_VISIBLE_DEVICES=all"), id="a,b") == (0, "")
    assert node.create(asking(), id="a,b")[0] == 1


def test_a_runtime_that_refuses_loses_its_share_to_the_next_that_needs_it(node: Node) -> None:
    """The runtime never knew `box`, so the sweep takes what it was given."""
    assert node.create(asking({"vcuda.io/core": "200"})) == (0, "")
    assert node.create(asking(), id="next") == (0, "")
    assert shares_of(node.ledger) == {"next": HALF_SHARE}
