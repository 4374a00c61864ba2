"""config.toml: every key works as documented, and TOML parsers agree on every file."""

from __future__ import annotations

import importlib
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.files import ROOT, write
from vcuda_oci.model.durations import parse_seconds
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.sizes import parse_bytes
from vcuda_oci.system import files, settings_file

# tomli became the standard library's tomllib.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
DEFAULTS = {
    "path": "/c",
    "runtime": "runc",
    "state_dir": "/run/vcuda",
    "_driver_root": "auto",
    "accept_request_from_env": "unprivileged",
    "placement": "binpack",
    "memory_overcommit": 1,
    "context_memory": 0,
    "meter_copies": False,
    "idle_suspend": 0,
    "isolation": "auto",
    "suspend_memory": 0,
    "rotates": False,
    "rotation_quantum": 0,
    "exemplars": False,
    "stop_bypass": False,
    "driver_limits": True,
    "decisions": "preferred",
    "labels": "auto",
    "by_dra": False,
    "mps_devices": False,
    "mps_partitions": [],
    "kubernetes": "auto",
    "extra_mounts": [],
    "driver_capabilities": [
        "compute",
        "utility",
        "graphics",
        "video",
        "display",
        "ngx",
        "compat32",
    ],
    "extra_devices": [],
    "core_resource": "tencent.com/vcuda-core",
    "memory_resource": "tencent.com/vcuda-memory",
    "listen": "127.0.0.1:5678",
    "gpu_resource": "",
    "gpu_split": 1,
    "ignored_xids": [13, 31, 43, 45, 68, 69],
    "lasting_xids": [48, 62, 64, 79, 95, 119, 120, 140],
}


def parsed(text: str) -> dict[str, Any]:
    return vars(settings_file.parse(text, "/c"))


def refusal(text: str) -> str:
    with pytest.raises(VcudaError) as refused:
        settings_file.parse(text, "/c")
    return str(refused.value)


def test_missing_empty_or_commented_file_means_the_defaults(tmp_path: Any) -> None:
    assert parsed("") == parsed("# only this\n\n \t# and this") == DEFAULTS
    missing = settings_file.load(f"{tmp_path}/none.toml")
    assert vars(missing) == {**DEFAULTS, "path": f"{tmp_path}/none.toml"}


def documented() -> dict[str, str]:
    with open(ROOT + "/packaging/config.toml") as file:
        return dict(re.findall(r"^# ([a-z-]+) = (.*)$", file.read(), re.MULTILINE))


def in_its_place(path: str, text: str) -> None:
    write(path + ".beside", text)
    os.utime(path + ".beside", ns=(os.stat(path).st_mtime_ns,) * 2)
    os.rename(path + ".beside", path)


def longer(path: str, text: str) -> None:
    before = os.stat(path).st_mtime_ns
    write(path, text + "# longer")
    os.utime(path, ns=(before, before))


def later(path: str, text: str) -> None:
    write(path, text)
    os.utime(path, (1, 1))


@pytest.mark.parametrize("change", [in_its_place, longer, later])
@pytest.mark.usefixtures("settled")
def test_settings_that_were_changed_are_what_the_next_container_gets(
    tmp_path: Any, change: Callable[[str, str], None]
) -> None:
    path = write(f"{tmp_path}/config.toml", 'runtime = "crun"')
    assert settings_file.load(path).runtime == settings_file.load(path).runtime == "crun"
    change(path, 'runtime = "runc"')
    assert settings_file.load(path).runtime == settings_file.load(path).runtime == "runc"
    os.unlink(path)
    write(path, "unknown = ''")
    for _ in range(2):
        with pytest.raises(VcudaError, match="unknown key"):
            settings_file.load(path)
    os.unlink(path)
    assert vars(settings_file.load(path)) == {**DEFAULTS, "path": path}
    other = write(f"{tmp_path}/other.toml", 'runtime = "other"')
    write(path, 'runtime = "crun"')
    assert [settings_file.load(one).runtime for one in (path, other, path)] == [
        "crun",
        "other",
        "crun",
    ]


@pytest.mark.usefixtures("settled")
def test_settings_that_stay_as_they_are_are_read_once(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(f"{tmp_path}/config.toml", 'runtime = "crun"')
    settings_file.load(path)
    monkeypatch.delattr(files, "read")
    assert settings_file.load(path).runtime == "crun"


def test_a_just_changed_file_is_read_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(f"{tmp_path}/config.toml", "")
    assert files.stamp(path) == files.stamp(f"{tmp_path}/none") == ()
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 2 * 10**9)
    stamp = files.stamp(path)
    assert stamp and files.stamp(path) == stamp
    monkeypatch.setattr(time, "time_ns", lambda: now - 10**12)  # the clock was set back
    assert files.stamp(path) == ()


def test_the_documented_file_names_every_key() -> None:
    assert documented().keys() == settings_file._DEFAULTS.keys()


@pytest.mark.parametrize("key", sorted(settings_file._DEFAULTS))
def test_a_documented_default_is_the_default_of_the_code(key: str) -> None:
    line = f"{key} = {documented()[key]}"
    assert tomllib.loads(line) == {key: settings_file._DEFAULTS[key]}
    assert parsed(line) == DEFAULTS


def test_the_documented_file_itself_changes_nothing() -> None:
    assert {**vars(settings_file.load(ROOT + "/packaging/config.toml")), "path": "/c"} == DEFAULTS


def test_every_key_changes_its_setting() -> None:
    text = """
        runtime = '/opt/crun'  # a comment
        state-dir="/run/other"
        driver-root = "/run/nvidia/driver"\r
        accept-request-from-env = "never"
        placement = "spread"
        memory-overcommit = "1.5"
        context-memory = "300MiB"
        meter-copies = "yes"
        idle-suspend = "2h"
        isolation = "mig"
        suspend-memory = "64GiB"
        oversubscribe = "rotate"
        rotation-quantum = "30s"
        exemplars = "yes"
        bypass = "stop"
        driver-limits = "off"
        decisions = "required"
        kubernetes = "no"
        labels = "api"
        gpu-offer = "dra"
        mps-devices = "yes"
        mps-partitions = "50, 25,25"
        extra-mounts = ["/a:/b", '/c d:/e#f',]
        driver-capabilities = ["compute"]
        extra-devices = ['gds', "imex"]
        core-resource = "example.org/core"
        memory-resource = ""
        gpu-resource = "nvidia.com/gpu"
        gpu-split = "10"
        listen = "[::]:5678"
        ignored-xids = []
        lasting-xids = ["79"]"""
    assert parsed(text) == {
        "path": "/c",
        "runtime": "/opt/crun",
        "state_dir": "/run/other",
        "_driver_root": "/run/nvidia/driver",
        "accept_request_from_env": "never",
        "placement": "spread",
        "memory_overcommit": 1.5,
        "context_memory": 300 << 20,
        "meter_copies": True,
        "idle_suspend": 7200,
        "isolation": "mig",
        "suspend_memory": 64 << 30,
        "rotates": True,
        "rotation_quantum": 30,
        "exemplars": True,
        "stop_bypass": True,
        "driver_limits": False,
        "decisions": "required",
        "kubernetes": "no",
        "labels": "api",
        "by_dra": True,
        "mps_devices": True,
        "mps_partitions": [50, 25, 25],
        "extra_mounts": [["/a", "/b"], ["/c d", "/e#f"]],
        "driver_capabilities": ["compute"],
        "extra_devices": ["gds", "imex"],
        "core_resource": "example.org/core",
        "memory_resource": "",
        "gpu_resource": "nvidia.com/gpu",
        "gpu_split": 10,
        "listen": "[::]:5678",
        "ignored_xids": [],
        "lasting_xids": [79],
    }


@pytest.mark.parametrize(
    ("has_driver", "has_software_gpu", "root"),
    [(False, False, "/"), (True, False, "/"), (False, True, "/run/softgpu"), (True, True, "/")],
)
def test_a_software_gpu_serves_a_host_without_a_driver(
    monkeypatch: pytest.MonkeyPatch, has_driver: bool, has_software_gpu: bool, root: str
) -> None:
    there = {"/proc/driver/nvidia": has_driver, "/run/softgpu/softgpu.state": has_software_gpu}
    monkeypatch.setattr(settings_file.os.path, "exists", lambda path: there[path])  # type: ignore[attr-defined]
    assert settings_file.parse("", "/c").driver_root == root
    assert settings_file.parse("driver-root = '/x'", "/c").driver_root == "/x"


PERCENTS = 'write percents of the multiprocessors, such as "50,25,25", or ""'
NAME_RUNC = "write a name such as runc, or a path that begins with /"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *(
            (
                f"mps-partitions = '{text}'",
                f"/c:3: mps-partitions cannot be '{text}'; {PERCENTS}",
            )
            for text in ("half", "50,", "0", "-5", "50;50", "1.5", "1000", "٣")
        ),
        (
            "mps-partitions = '50,51'",
            "/c:3: the percents of mps-partitions, '50,51', add up to 101; "
            "write such that add up to at most 100",
        ),
        ("runtme = 'crun'", "/c:3: unknown key 'runtme'; did you mean 'runtime'?"),
        ("state_dir = '/x'", "/c:3: unknown key 'state_dir'; did you mean 'state-dir'?"),
        ("placment = 'x'", "/c:3: unknown key 'placment'; did you mean 'placement'?"),
        ("runtime", "/c:3: 'runtime' is not a setting; write key = \"value\""),
        ("[vcuda]", "/c:3: '[vcuda]' is not a setting; write key = \"value\""),
        ("runtime = crun", '/c:3: runtime takes a string; write runtime = "…" on one line'),
        ("runtime = 1", '/c:3: runtime takes a string; write runtime = "…" on one line'),
        ("runtime = ", '/c:3: runtime takes a string; write runtime = "…" on one line'),
        ("runtime = '''crun'''", '/c:3: runtime takes a string; write runtime = "…" on one line'),
        ("runtime = 'crun", "/c:3: the string of runtime does not end; close it with '"),
        ("runtime = 'a' 'b'", "/c:3: ''b'' after the value; end the line there"),
        (r'runtime = "\q"', "/c:3: unknown escape '\\q'; use '…' for raw text"),
        ("runtime = 'a\x07b'", "/c:3: a control character in a string; remove it"),
        ("# \x07", "/c:3: a control character in a comment; remove it"),
        ("runtime = ''", f"/c:3: runtime '' is neither a name nor absolute; {NAME_RUNC}"),
        ("runtime = 'a/b'", f"/c:3: runtime 'a/b' is neither a name nor absolute; {NAME_RUNC}"),
        (
            "state-dir = 'run'",
            "/c:3: state-dir 'run' is not absolute; write a path that begins with /",
        ),
        (
            "placement = 'best'",
            "/c:3: placement cannot be 'best'; choose one of binpack, spread, topology",
        ),
        (
            "accept-request-from-env = 'yes'",
            "/c:3: accept-request-from-env cannot be 'yes'; "
            "choose one of never, unprivileged, always",
        ),
        *(
            (
                f"memory-overcommit = '{text}'",
                f"/c:3: memory-overcommit cannot be '{text}'; "
                "write how often memory may be promised, from 1 to 100, such as 1.5",
            )
            for text in ("0.99", "0", "-2", "100.1", "nan", "inf", "1e1", "1_0", "1.", ".5", "")
        ),
        *(
            (
                f"rotation-quantum = '{text}'",
                f"/c:3: rotation-quantum cannot be '{text}'; {hint}",
            )
            for text, hint in (
                ("never", "write measured, or a time such as 30s"),
                ("30", "write never, or a time from 1s to 30d, such as 90s, 10m or 2h"),
            )
        ),
        *(
            (
                f"context-memory = '{text}'",
                f"/c:3: context-memory cannot be '{text}'; write a size such as 300MiB, or 0",
            )
            for text in ("", "-1", "300MB", "some", "1048576TiB")
        ),
        ("context-memory = '300'", "/c:3: context-memory '300' is 300 bytes; did you mean 300MiB?"),
        *(
            (
                f"core-resource = '{text}'",
                f"/c:3: core-resource cannot be '{text}'; "
                'write a domain and a name such as tencent.com/vcuda-core, or ""',
            )
            for text in ("core", "/core", "a.b/", "a.b/c/d", "-a.b/c", "a.b/c d", "a.b/" + "c" * 64,
                         "kubernetes.io/core")
        ),
        *(
            (
                f"ignored-xids = ['{text}']",
                f"/c:3: invalid Xid '{text}'; write numbers: [\"13\", \"31\"]",
            )
            for text in ("", "-1", "79 ", "all", "99999")
        ),
        (
            "extra-devices = ['gds', 'dgs']",
            "/c:3: extra-devices cannot be 'dgs'; "
            "choose one of gds, gdrcopy, mofed, nvswitch, imex, mps",
        ),
        (
            "driver-capabilities = ['all']",
            "/c:3: driver-capabilities cannot be 'all'; "
            "choose one of compute, utility, graphics, video, display, ngx, compat32",
        ),
        ("extra-mounts = '/a:/b'", '/c:3: extra-mounts takes a list; write extra-mounts = ["…"] '
         "on one line"),
        ("extra-mounts = ['/a']", '/c:3: invalid mount \'/a\'; write "/source:/destination"'),
        ("extra-mounts = ['a:/b']", '/c:3: invalid mount \'a:/b\'; write "/source:/destination"'),
        ("extra-mounts = ['/a:/b' '/c:/d']", "/c:3: the list of extra-mounts does not end; "
         "close it with ]"),
        ("extra-mounts = [", '/c:3: extra-mounts takes a string; write extra-mounts = "…" '
         "on one line"),
        ("driver-root = '/x'", "/c:3: 'driver-root' is set twice; remove one of the lines"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_with_its_number_and_what_to_write(line: str, message: str) -> None:
    assert refusal(f"driver-root = '/x'\n\n{line}\n") == message


@pytest.mark.parametrize(
    "text", ["runtime = 'a'\r", "\rruntime = 'a'", "runtime = 'a'\r\r\n", "#\r#"]
)
def test_a_carriage_return_without_its_line_feed_is_refused_as_toml_has_it(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    assert refusal(text).startswith("/c:1: ")


def test_a_file_that_is_no_text_is_refused_in_one_line(tmp_path: Any) -> None:
    (tmp_path / "c").write_bytes(b"runtime = '\xff'")
    with pytest.raises(VcudaError, match="make it a readable UTF-8 file"):
        settings_file.load(f"{tmp_path}/c")


KEYS = st.sampled_from([*settings_file._DEFAULTS, "unknown"])
TEXTS = st.text(alphabet="ab/:.\\\"'#=,[] \tnrtuU0\r\x0b\x7fé\x85…", max_size=8) | st.sampled_from(
    ["runc", "/a", "/a:/b", "never", "spread", "/\t", "1.5", "0", "3MiB", "a.b/c", "79"]
)
QUOTED = st.tuples(st.sampled_from("\"'"), TEXTS).map(lambda pair: pair[0] + pair[1] + pair[0])
LISTS = st.lists(QUOTED, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
SPACE = st.sampled_from(["", " ", "\t", "\r", "\x0b"])
COMMENT = st.sampled_from(["", "#", " # a", " #\x00", "#\x7f", " #\t…"])
LINES = st.tuples(SPACE, KEYS, SPACE, st.just("="), SPACE, QUOTED | LISTS | TEXTS, SPACE, COMMENT)
FILES = st.lists(LINES.map("".join) | COMMENT | TEXTS, max_size=4).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n", "\r", "\n\n"]).map(lambda end: end.join(lines))
)


@example('gpu-split = "79"')
@example('driver-root = "/a"')
@example('idle-suspend = "never"')
@example('suspend-memory = "3MiB"')
@example('mps-partitions = "79"')
@given(FILES)
def test_what_we_take_tomllib_takes_with_the_same_values(text: str) -> None:
    try:
        ours = parsed(text)
    except VcudaError:
        return
    theirs = tomllib.loads(text)
    mounts = [mount.split(":") for mount in theirs.pop("extra-mounts", [])]
    renamed = {key.replace("-", "_"): value for key, value in theirs.items()}
    if "driver_root" in renamed:
        renamed["_driver_root"] = renamed.pop("driver_root")
    meanings: tuple[tuple[str, Any], ...] = (
        ("memory_overcommit", float),
        ("context_memory", parse_bytes),
        ("suspend_memory", parse_bytes),
        ("idle_suspend", lambda time: parse_seconds(time, "idle-suspend", "/c")),
        ("mps_partitions", lambda percents: [int(each) for each in percents.split(",") if each]),
        ("gpu_split", int),
        *(
            (key, lambda xids: [int(xid) for xid in xids])
            for key in ("ignored_xids", "lasting_xids")
        ),
    )
    for key, meaning in meanings:
        if key in renamed:
            renamed[key] = meaning(renamed[key])
    assert ours == {**DEFAULTS, **renamed, "extra_mounts": mounts}
