"""Edits are pure, complete and idempotent."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.files import write
from support.ledger.samples import PATHS, host, record
from unit.container.test_jsontree import TREES
from vcuda_oci.container import bundle
from vcuda_oci.edits import config_json, edits
from vcuda_oci.edits.edits import Edits
from vcuda_oci.host.host import DeviceNode
from vcuda_oci.model import jsontree
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError

FOLDER = "/usr/lib64"
DRIVER = "/root/usr/lib/x86_64-linux-gnu"
READ_ONLY = ["bind", "rprivate", "nosuid", "nodev", "ro"]
READ_WRITE = ["bind", "rprivate", "nosuid", "nodev", "noexec"]


def node() -> Any:
    found = host(16, 16)
    version = found.version
    found.libraries = {
        "libcuda.so.1": f"{DRIVER}/libcuda.so.{version}",
        f"libcuda.so.{version}": f"{DRIVER}/libcuda.so.{version}",
        "libnvidia-ml.so.1": f"{DRIVER}/libnvidia-ml.so.{version}",
        f"libnvidia-ptxjitcompiler.so.{version}": f"{DRIVER}/libnvidia-ptxjitcompiler.so.{version}",
    }
    found.files = {"/usr/bin/nvidia-smi": "/root/usr/bin/nvidia-smi"}
    return found


def share_on(*indexes: int) -> Edits:
    shares = [GpuShare(f"GPU-{index}", 1 << 30, 30) for index in indexes]
    return edits.edits_for(record(shares=shares), node(), PATHS, FOLDER)


SHARE = share_on(0)


def device(path: str, major: int, minor: int) -> dict[str, Any]:
    return {
        "path": path,
        "type": "c",
        "major": major,
        "minor": minor,
        "fileMode": 0o666,
        "uid": 0,
        "gid": 0,
    }


def rule(major: int, minor: int) -> dict[str, Any]:
    return {"allow": True, "type": "c", "major": major, "minor": minor, "access": "rw"}


def mount(source: str, destination: str, options: list[str]) -> dict[str, Any]:
    return {"destination": destination, "type": "bind", "source": source, "options": options}


DEVICES = [
    device("/dev/nvidia0", 195, 0),
    device("/dev/nvidiactl", 195, 255),
    device("/dev/nvidia-uvm", 510, 0),
]
RULES = [rule(195, 0), rule(195, 255), rule(510, 0)]
MOUNTS = [
    mount("/root/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi", READ_ONLY),
    mount(PATHS.shim, f"{FOLDER}/libcuda.so.1", READ_ONLY),
    mount(PATHS.shim, f"{FOLDER}/libcuda.so.580.95.05", READ_ONLY),
    mount(PATHS.shim, f"{FOLDER}/libnvidia-ml.so.1", READ_ONLY),
    mount(
        f"{DRIVER}/libnvidia-ptxjitcompiler.so.580.95.05",
        f"{FOLDER}/libnvidia-ptxjitcompiler.so.580.95.05",
        READ_ONLY,
    ),
    mount(f"{DRIVER}/libcuda.so.580.95.05", "/usr/local/vcuda/driver/cuda", READ_ONLY),
    mount(
        f"{DRIVER}/libnvidia-ml.so.580.95.05",
        "/usr/local/vcuda/driver/nvml",
        READ_ONLY,
    ),
    mount("/run/softgpu", "/run/softgpu", READ_WRITE),
    mount("/run/vcuda/containers/box/limits", "/usr/local/vcuda/limits", [*READ_ONLY, "noexec"]),
    mount("/run/vcuda/containers/box/usage", "/usr/local/vcuda/usage", READ_WRITE),
]
HOOK = {
    "path": "/opt/bin/vcuda-container-hook",
    "args": ["/opt/bin/vcuda-container-hook", "--config", "/c", "poststop", "box"],
    "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
    "timeout": 30,
}
EDITED = {
    "linux": {"devices": DEVICES, "resources": {"devices": RULES}},
    "mounts": MOUNTS,
    "hooks": {"poststop": [HOOK]},
}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"linux": None, "mounts": None, "hooks": None},
        {"linux": {"devices": None, "resources": None}, "hooks": {"poststop": None}},
        {"linux": {"resources": {"devices": None}}, "mounts": []},
        EDITED,
    ],
    ids=["empty spec", "null", "null lists", "empty list", "edited already"],
)
def test_a_share_yields_exactly_this_spec(spec: Any) -> None:
    once = config_json.apply(spec, SHARE)
    assert once == EDITED
    assert config_json.apply(once, SHARE) == once


def test_every_gpu_of_the_share_has_its_node_and_no_other() -> None:
    paths = [found["path"] for found in config_json.apply({}, share_on(1))["linux"]["devices"]]
    assert paths == ["/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    both = [found["path"] for found in config_json.apply({}, share_on(0, 1))["linux"]["devices"]]
    assert both == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]


def test_a_stale_device_node_is_replaced() -> None:
    stale = {"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 3}
    other = {"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}
    edited = config_json.apply({"linux": {"devices": [stale, other]}}, SHARE)
    assert edited["linux"]["devices"] == [other, *DEVICES]


def test_a_bundle_used_again_loses_the_gpu_it_had_before() -> None:
    again = config_json.apply(config_json.apply({}, share_on(1)), SHARE)
    assert sorted(found["path"] for found in again["linux"]["devices"]) == [
        "/dev/nvidia-uvm",
        "/dev/nvidia0",
        "/dev/nvidiactl",
    ]
    assert sorted(found["minor"] for found in again["linux"]["resources"]["devices"]) == [0, 0, 255]


def test_rules_of_the_engine_stay_in_front_and_ours_decide() -> None:
    nothing = {"allow": False, "access": "rwm"}
    denied = {"allow": False, "type": "c", "major": 195, "minor": 1, "access": "rwm"}
    disk = {"allow": True, "type": "b", "major": 195, "minor": 1, "access": "rwm"}
    spec = {"linux": {"resources": {"devices": [rule(195, 0), nothing, denied, disk]}}}
    edited = config_json.apply(spec, SHARE)
    assert edited["linux"]["resources"]["devices"] == [nothing, denied, disk, *RULES]


def test_a_rule_for_all_minors_of_a_gpus_major_opens_none() -> None:
    wide = {"allow": True, "type": "c", "major": 195, "access": "rwm"}
    to_make = {"allow": True, "type": "c", "access": "m"}
    other = {"allow": True, "type": "c", "major": 226, "access": "rwm"}
    spec = {"linux": {"resources": {"devices": [wide, to_make, {**wide, "minor": -1}, other]}}}
    edited = config_json.apply(spec, SHARE)
    narrow = {**wide, "access": "m"}
    rules = [narrow, to_make, {**narrow, "minor": -1}, other, *RULES]
    assert edited["linux"]["resources"]["devices"] == rules
    assert config_json.apply(edited, SHARE) == edited


def test_a_users_mount_over_ours_is_replaced_and_others_stay_in_front() -> None:
    fake = {"destination": "/usr/local/vcuda/limits", "source": "/home/me/limits", "type": "bind"}
    proc = {"destination": "/proc", "type": "proc", "source": "proc"}
    parent = {"destination": "/usr/local/vcuda", "source": "/home/me", "type": "bind"}
    edited = config_json.apply({"mounts": [fake, proc, parent]}, SHARE)
    assert edited["mounts"] == [proc, parent, *MOUNTS]


def test_hooks_of_others_stay_and_ours_has_an_env_of_its_own() -> None:
    other = {"path": "/bin/true"}
    edited = config_json.apply({"hooks": {"poststop": [other], "prestart": [other]}}, SHARE)
    assert edited["hooks"] == {"poststop": [HOOK, other], "prestart": [other]}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"linux": []}, "'linux' is not an object"),
        ({"linux": {"devices": {}}}, "'devices' is not a list"),
        ({"linux": {"resources": "x"}}, "'resources' is not an object"),
        ({"linux": {"resources": {"devices": 5}}}, "'devices' is not a list"),
        ({"mounts": {}}, "'mounts' is not a list"),
        ({"hooks": []}, "'hooks' is not an object"),
        ({"hooks": {"poststop": {}}}, "'poststop' is not a list"),
    ],
)
def test_a_spec_of_the_wrong_kinds_is_one_line_and_stays_as_it_was(spec: Any, message: str) -> None:
    before = copy.deepcopy(spec)
    with pytest.raises(VcudaError) as refused:
        config_json.apply(spec, SHARE)
    assert str(refused.value) == f"config.json: {message}; correct it as the OCI spec says"
    assert spec == before


def nested(depth: int) -> str:
    return '{"x":' * depth + "{}" + "}" * depth


def test_a_spec_that_can_be_read_but_not_written_is_one_line_and_stays(tmp_path: Any) -> None:
    """The writer stands a few calls further down than the reader did."""
    least, most = 1, 100_000
    while most - least > 1:
        depth = (least + most) // 2
        try:
            jsontree.loads(nested(depth))
            least = depth
        except ValueError:
            most = depth
    path, known = f"{tmp_path}/config.json", set()
    for depth in range(least - 30, least + 1):
        write(path, "{}")
        spec = jsontree.loads(nested(depth))
        try:
            bundle.replace_config(path, config_json.apply(spec, SHARE))
        except VcudaError as error:
            known.add(str(error))
            with open(path) as file:
                assert file.read() == "{}"
    line = "config.json: nested too deeply; correct it as the OCI spec says"
    # Since Python 3.12 what can be read from there can be written from here.
    assert known == ({line} if sys.version_info < (3, 12) else set())


@pytest.mark.parametrize("junk", [None, 5, "x", [], {}, {"path": 5}, {"major": 195, "minor": 1}])
def test_malformed_list_entries_are_left_to_the_runtime(junk: Any) -> None:
    spec = {
        "linux": {"devices": [junk], "resources": {"devices": [junk]}},
        "mounts": [junk],
        "hooks": {"poststop": [junk]},
    }
    edited = config_json.apply(spec, SHARE)
    assert edited["linux"]["devices"] == [junk, *DEVICES]
    assert edited["linux"]["resources"]["devices"] == [junk, *RULES]
    assert edited["mounts"] == [junk, *MOUNTS]
    # The first hook: after a failing hook the later ones do not run.
    assert edited["hooks"]["poststop"] == [HOOK, junk]


OURS = ("linux", "mounts", "hooks")
UNKNOWN = st.dictionaries(st.text().filter(lambda key: key not in OURS), TREES, max_size=3)
INSIDE = st.dictionaries(
    st.text().filter(lambda key: key not in ("devices", "resources", "poststop")), TREES, max_size=3
)


@given(UNKNOWN, INSIDE, INSIDE, INSIDE)
def test_what_we_do_not_know_survives_at_every_level(
    top: Any, linux: Any, resources: Any, hooks: Any
) -> None:
    spec = {**top, "linux": {**linux, "resources": resources}, "hooks": hooks}
    before = copy.deepcopy(spec)
    assert config_json.apply(spec, SHARE) == {
        **top,
        "linux": {**linux, "devices": DEVICES, "resources": {**resources, "devices": RULES}},
        "mounts": MOUNTS,
        "hooks": {**hooks, "poststop": [HOOK]},
    }
    assert spec == before


def test_the_later_of_two_mounts_on_one_place_counts() -> None:
    twice = edits.Edits()
    twice.mounts = [("/a", "/x", ["ro"]), ("/b", "/y", []), ("/c", "/x", ["rw"])]
    spec = {"mounts": [{"destination": ["/x"]}, {"destination": "/x"}, {"destination": "/z"}]}
    assert [
        (item["destination"], item.get("source"))
        for item in config_json.apply(spec, twice)["mounts"]
    ] == [(["/x"], None), ("/z", None), ("/y", "/b"), ("/x", "/c")]


def test_the_edited_spec_shares_nothing_with_the_edits() -> None:
    first = config_json.apply({}, SHARE)
    first["mounts"][0]["options"].append("rw")
    first["hooks"]["poststop"][0]["env"].append("LD_PRELOAD=/x")
    assert config_json.apply({}, SHARE) == EDITED


@pytest.mark.parametrize("gone", ["the node", "the GPU"])
def test_a_gpu_without_a_device_node_is_one_line(gone: str) -> None:
    found = node()
    if gone == "the node":
        del found.nodes["nvidia0"]
    else:
        found.gpus.pop(0)
    with pytest.raises(VcudaError) as refused:
        edits.edits_for(record(), found, PATHS, FOLDER)
    assert str(refused.value) == (
        "/root/dev/nvidia*: allocation box names GPU-0, which has no device node; "
        "run 'nvidia-modprobe -c 0 -u' and create the container again"
    )


def test_device_numbers_are_the_hosts_own() -> None:
    found = node()
    found.nodes["nvidia0"] = DeviceNode("/dev/nvidia0", 234, 7)
    edited = config_json.apply({}, edits.edits_for(record(), found, PATHS, FOLDER))
    assert edited["linux"]["devices"][0] == device("/dev/nvidia0", 234, 7)
    assert edited["linux"]["resources"]["devices"][0] == rule(234, 7)
