"""The CDI spec is valid and has the wrapper's device rules and mounts; named slices."""

from __future__ import annotations

import functools
import json
import os
import stat
from typing import Any

import jsonschema
import pytest

from support.cdi_schema import SCHEMA
from support.files import script, write
from support.gpu import driver_layouts
from support.gpu.driver_root import VERSION, DriverRoot
from support.ledger.faults import killed_at
from support.ledger.samples import GIB, left_in
from vcuda_hook.cli import main
from vcuda_oci.edits import edits
from vcuda_oci.host import host
from vcuda_oci.ledger import liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import capabilities
from vcuda_oci.pages import page_reader
from vcuda_oci.start import apply_share

READ_ONLY = ["bind", "rprivate", "nosuid", "nodev", "ro"]
READ_WRITE = ["bind", "rprivate", "nosuid", "nodev", "noexec"]


class Node:
    """A driver root, a config.toml, and the folder of the spec."""

    def __init__(
        self, folder: str, count: int, driver: DriverRoot | None = None, more: str = ""
    ) -> None:
        self.driver = driver or DriverRoot(f"{folder}/driver", count=count)
        self.ledger = Ledger(f"{folder}/state")
        self.spec = f"{folder}/cdi/vcuda.json"
        self.settings = write(
            f"{folder}/config.toml",
            f'driver-root = "{folder}/driver"\nstate-dir = "{folder}/state"\n'
            f'extra-mounts = ["/run/softgpu:/run/softgpu"]\n{more}',
        )

    def cdi(self, verb: str, *words: str) -> int:
        return main.main(["--config", self.settings, "cdi", verb, "--output", self.spec, *words])

    def read(self) -> dict[str, Any]:
        with open(self.spec) as file:
            tree: dict[str, Any] = json.load(file)
        jsonschema.validate(tree, SCHEMA)
        return tree

    def devices(self) -> dict[str, Any]:
        return {device["name"]: device["containerEdits"] for device in self.read()["devices"]}

    def node(self, name: str) -> dict[str, Any]:
        path = f"/dev/{name}"
        source = self.driver.path + path
        kind = {"permissions": "rw", "fileMode": 0o666, "uid": 0, "gid": 0}
        return {"path": path, "hostPath": source, **kind}

    def mount(self, source: str, destination: str, options: Any = READ_ONLY) -> dict[str, Any]:
        return {"hostPath": source, "containerPath": destination, "options": options}

    def shares(self) -> dict[str, list[tuple[str, int, int]]]:
        allocations, broken = self.ledger.read()
        assert broken == []
        return {
            held.id: [(s.uuid, s.core_percent, s.memory_bytes) for s in held.shares]
            for held in allocations
        }


@pytest.fixture
def shim(tmp_path: Any, monkeypatch: Any) -> str:
    path = write(f"{tmp_path}/lib/libvcuda-abc.so", "")
    monkeypatch.setattr(apply_share, "SHIM", path)
    return path


@pytest.fixture
def node(tmp_path: Any, shim: str) -> Node:
    return Node(str(tmp_path), 2)


def as_the_wrapper_mounts(node: Node, shim: str, held: str) -> list[dict[str, Any]]:
    """What a container with the slice `held` gets of the wrapper, in images of both families."""
    facts = host.load(node.driver.path, f"{node.ledger.state_dir}/host.json")
    (allocation,) = node.ledger.read()[0]
    paths = edits.Paths(shim, held, ["hook"], [["/run/softgpu", "/run/softgpu"]])
    mounts = {}
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        for mount in edits.edits_for(allocation, facts, paths, folder, capabilities.ALL).mounts:
            mounts[mount[1]] = node.mount(*mount)
    return by_place(list(mounts.values()))


def the_driver_itself(node: Node, shim: str, mounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with no trace of the shim: each library stands for the driver's own file."""
    plain = []
    for mount in mounts:
        place = mount["containerPath"]
        if place.startswith("/usr/local/vcuda/"):
            continue
        if mount["hostPath"] == shim:
            name = os.path.basename(place).partition(".so")[0]
            mount = {**mount, "hostPath": f"{node.driver.folder}/{name}.so.{VERSION}"}
        plain.append(mount)
    return plain


def by_place(mounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(mounts, key=lambda mount: str(mount["containerPath"]))


def test_whole_gpus_get_the_driver_itself(node: Node) -> None:
    assert node.cdi("generate") == 0
    spec = node.read()
    assert {key: spec[key] for key in ("cdiVersion", "kind")} == {
        "cdiVersion": "0.5.0",
        "kind": "vcuda.io/gpu",
    }
    common = spec["containerEdits"]
    command = [apply_share.HOOK, "--config", node.settings, "cdi"]
    assert [(hook["hookName"], hook["args"]) for hook in common["hooks"]] == [
        ("createRuntime", command),
        ("poststop", command),
    ]
    assert common["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    control = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    assert sorted(map(str, common["deviceNodes"])) == sorted(str(node.node(n)) for n in control)
    real = {mount["containerPath"]: mount["hostPath"] for mount in common["mounts"]}
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        for name in ("libcuda", "libnvidia-ml"):
            assert real[f"{folder}/{name}.so.1"] == f"{node.driver.folder}/{name}.so.{VERSION}"
    assert real["/usr/bin/nvidia-smi"] == f"{node.driver.path}/usr/bin/nvidia-smi"
    assert [place for place in real if "vcuda" in place] == []
    assert node.mount("/run/softgpu", "/run/softgpu", READ_WRITE) in common["mounts"]
    first, second = node.node("nvidia0"), node.node("nvidia1")
    assert node.devices() == {
        "0": {"deviceNodes": [first], "mounts": []},
        "GPU-0": {"deviceNodes": [first], "mounts": []},
        "1": {"deviceNodes": [second], "mounts": []},
        "GPU-1": {"deviceNodes": [second], "mounts": []},
        "all": {"deviceNodes": [first, second], "mounts": []},
    }


def test_a_named_slice_gets_the_shim_and_pages_of_its_own(node: Node, shim: str) -> None:
    assert node.cdi("generate", "--slice", "train=core:150,memory:4GiB") == 0
    # The whole GPU of the two is the first that is wholly free.
    assert node.shares() == {"cdi@train": [("GPU-0", 100, 16 * GIB), ("GPU-1", 50, 4 * GIB)]}
    held = f"{node.ledger.containers}/cdi@train"
    limits = page_reader.read_limits(open(f"{held}/limits", "rb").read())  # noqa: SIM115
    assert [(gpu.uuid, gpu.memory_bytes, gpu.core_percent) for gpu in limits.gpus] == [
        ("GPU-0", 16 * GIB, 100),
        ("GPU-1", 4 * GIB, 50),
    ]
    spec, devices = node.read(), node.devices()
    assert devices["train"]["deviceNodes"] == [node.node("nvidia0"), node.node("nvidia1")]
    common = spec["containerEdits"]["mounts"]
    wrapped = as_the_wrapper_mounts(node, shim, held)
    assert node.mount(shim, "/usr/lib64/libcuda.so.1") in wrapped
    assert by_place(common + devices["train"]["mounts"]) == wrapped
    for name in ("0", "GPU-1", "all"):
        all_mounts = by_place(common + devices[name]["mounts"])
        assert all_mounts == the_driver_itself(node, shim, wrapped)


def test_the_only_gpu_of_a_host_is_a_device_too(tmp_path: Any, shim: str) -> None:
    node = Node(str(tmp_path), 1)
    assert node.cdi("generate") == 0
    edits = {"deviceNodes": [node.node("nvidia0")], "mounts": []}
    assert node.devices() == {"0": edits, "GPU-0": edits, "all": edits}


def test_devices_get_what_the_settings_offer_of_the_driver(tmp_path: Any, shim: str) -> None:
    capability_of = {
        "/usr/lib64/libnvidia-ml.so.1": "utility",
        "/usr/lib64/libnvidia-ptxjitcompiler.so.1": "compute",
        "/usr/lib64/libGLX_nvidia.so.0": "graphics",
        "/usr/share/vulkan/icd.d/nvidia_icd.json": "graphics",
        "/usr/lib/libGLX_nvidia.so.1": "compat32",
    }
    for offered in (["utility"], ["compute", "utility"], ["graphics", "compat32"]):
        folder = f"{tmp_path}/{'-'.join(offered)}"
        driver = driver_layouts.install(f"{folder}/driver", driver_layouts.LAYOUTS["RHEL"])
        node = Node(folder, 1, driver, f"driver-capabilities = {json.dumps(offered)}\n")
        # In a child: a process keeps the NVML that it has loaded.
        assert not killed_at(0, functools.partial(node.cdi, "generate"))
        places = {mount["containerPath"] for mount in node.read()["containerEdits"]["mounts"]}
        expected = {place for place, word in capability_of.items() if word in offered}
        assert places & set(capability_of) == expected


def test_standard_output_takes_the_spec_and_no_file_is_made(node: Node, capsys: Any) -> None:
    assert main.main(["--config", node.settings, "cdi", "generate", "--output", "-"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), SCHEMA)
    assert not os.path.exists(os.path.dirname(node.spec))


def test_a_slice_stays_when_it_is_not_named_again_and_dead_ones_are_swept(
    node: Node, capsys: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    # No runtime is called, in particular no program of the current folder.
    script(f"{tmp_path}/here/state", "#!/bin/sh\necho container does not exist >&2\nexit 1\n")
    monkeypatch.chdir(f"{tmp_path}/here")
    # In a child: the claiming process has ended long since.
    assert not killed_at(0, lambda: node.cdi("generate", "--slice", "train=core:30"))
    assert node.cdi("generate") == 0
    assert "train" in node.devices()
    with node.ledger:
        assert node.ledger.sweep(liveness.is_alive) == []
    assert main.main(["--config", node.settings, "ps", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out.split("train\n")[-1])
    assert (entry["id"], entry["status"], entry["container_id"]) == ("cdi@train", "named", "")


def test_a_slice_is_released_by_its_name_alone(node: Node, capsys: Any) -> None:
    assert node.cdi("generate", "--slice", "train=core:30", "--slice", "infer=core:20") == 0
    capsys.readouterr()
    assert main.main(["--config", node.settings, "release", "cdi@train"]) == 1
    assert capsys.readouterr().err == (
        "vcuda: cdi@train: is a device of the CDI spec; run 'vcuda cdi remove train'\n"
    )
    assert node.cdi("remove", "train", "--json") == 0
    assert json.loads(capsys.readouterr().out) == ["train"]
    assert ("train" in node.devices(), "infer" in node.devices()) == (False, True)
    assert list(node.shares()) == ["cdi@infer"]
    assert node.cdi("remove", "infer", "train") == 1
    assert capsys.readouterr().err == "vcuda: train: no slice of this name; see 'vcuda ps'\n"
    assert list(node.shares()) == ["cdi@infer"]


@pytest.mark.parametrize(
    ("slices", "line"),
    [
        (["a"], "--slice: 'a' is not a slice; write NAME=core:30,memory:5GiB"),
        (["../a=core:30"], "--slice: '../a=core:30' is not a slice; "),
        (["0=core:30"], "--slice: '0' is a whole GPU's name; choose another"),
        (["all=core:30"], "--slice: 'all' is a whole GPU's name; choose another"),
        (["gpu-0=core:30"], "--slice: 'gpu-0' is a whole GPU's name; choose another"),
        (["a=core"], "--slice a: 'core' is not part of a request; write core:30"),
        (
            ["a=core:30,memory:1GiB,isolation:mps"],
            "--slice a: 'isolation' is not part of a slice; leave it out: a slice's containers "
            "take turns",
        ),
        (["a=core:30,core:40"], "--slice a: 'core:40' is not part of a request; write core:30"),
        (["a=cores:30"], "--slice a: unknown request key 'cores'; did you mean 'core'?"),
        (["a=memory:1GiB"], "--slice a: memory without core; add how much compute: core:30"),
        (["a=core:30", "b=core:300"], "placement: 1 of 2 GPUs are wholly free; 3 asked; "),
        (["old=core:40"], "old: exists with another request; run 'vcuda cdi remove old' first"),
    ],
)
def test_a_slice_that_cannot_be_leaves_everything_as_it_was(
    node: Node, capsys: Any, slices: list[str], line: str
) -> None:
    assert node.cdi("generate", "--slice", "old=core:30") == 0
    before, shares = node.read(), node.shares()
    capsys.readouterr()
    words = [word for text in slices for word in ("--slice", text)]
    assert node.cdi("generate", *words) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith(f"vcuda: {line}")
    assert (node.read(), node.shares()) == (before, shares)


def test_spec_replaces_no_device(node: Node, capsys: Any) -> None:
    os.makedirs(os.path.dirname(node.spec))
    os.mkfifo(node.spec)
    assert node.cdi("generate") == 1
    line = f"vcuda: {node.spec}: is not a regular file; name another --output\n"
    assert capsys.readouterr().err == line
    assert stat.S_ISFIFO(os.stat(node.spec).st_mode)


def test_slices_are_added_and_removed_completely_at_any_kill(node: Node) -> None:
    """A slice in the spec is always one of the ledger, and the next run makes both whole."""
    at = 1
    while True:
        killed = killed_at(at, lambda: node.cdi("generate", "--slice", "train=core:30"))
        if os.path.exists(node.spec) and "train" in node.devices():
            assert list(node.shares()) == ["cdi@train"]
        if not killed:
            break
        assert node.cdi("generate", "--slice", "train=core:30") == 0
        assert "train" in node.devices()
        stop = 1
        while killed_at(stop, lambda: node.cdi("remove", "train")):
            if "train" in node.devices():
                assert list(node.shares()) == ["cdi@train"]
            assert node.cdi("generate", "--slice", "train=core:30") == 0
            stop += 7  # a prime: over the runs every change is met
        assert node.shares() == {}
        with node.ledger:
            node.ledger.sweep(liveness.is_alive)
        assert left_in(node.ledger.state_dir) == ["host.json"]
        os.unlink(node.spec)
        at += 1
    assert at > 15


def test_slice_of_a_removed_gpu_is_no_longer_a_device(node: Node, tmp_path: Any) -> None:
    # In a child: a process keeps the NVML that it has loaded.
    assert not killed_at(0, lambda: node.cdi("generate", "--slice", "train=core:30,gpu:1"))
    assert "train" in node.devices()
    os.rename(node.driver.path, f"{tmp_path}/old")
    node.driver = DriverRoot(node.driver.path, count=1)
    assert node.cdi("generate") == 0
    assert list(node.devices()) == ["0", "GPU-0", "all"]
    assert list(node.shares()) == ["cdi@train"]
