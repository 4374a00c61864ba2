"""Whether the host has room for what a container holds on its GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.ledger.samples import GIB, record
from vcuda_hook.checkpoint import host_room
from vcuda_hook.checkpoint.host_room import HOST, Limit
from vcuda_hook.live import cgroup_folders
from vcuda_oci.model.suspension import SUSPENDED, Suspension

MIB = 1 << 20


def test_the_first_limit_that_is_too_small_is_named() -> None:
    def refusal(needed: int) -> tuple[str, str] | None:
        limits = [Limit("/group", 5 * GIB, needed), Limit(HOST, 3 * GIB, needed)]
        return host_room.refusal(needed, limits, 0, 0)

    assert refusal(2 * GIB) is None
    assert refusal(4 * GIB) == (
        "the host has 3.0 GiB of memory free, 4.0 GiB are needed",
        "free memory of the host",
    )
    assert refusal(5 * GIB) == (
        "/group has 5.0 GiB of memory free, 5.0 GiB are needed",
        "give the container a larger memory limit",
    )


def test_each_limit_needs_what_the_processes_below_it_hold() -> None:
    one = [Limit("/pod/one", GIB, 0), Limit("/pod", 4 * GIB, 0), Limit(HOST, 9 * GIB, 0)]
    two = [Limit("/pod", 4 * GIB, 3 * GIB), Limit(HOST, 9 * GIB, 3 * GIB)]
    three = [Limit("/other", 4 * GIB, GIB), Limit(HOST, 9 * GIB, GIB)]
    found = host_room.together([*one, *two, *three])
    assert [(limit.of, limit.needed // GIB) for limit in found] == [
        ("/pod/one", 0), ("/pod", 3), (HOST, 4), ("/other", 1),
    ]  # fmt: skip
    assert host_room.refusal(4 * GIB, found, 0, 0) is None


def test_what_is_suspended_already_counts_against_the_bound() -> None:
    assert host_room.refusal(2 * GIB, [], 6 * GIB, 8 * GIB) is None
    assert host_room.refusal(2 * GIB + 1, [], 6 * GIB, 8 * GIB) == (
        "6.0 GiB of suspend-memory 8.0 GiB are taken, 2.0 GiB are needed",
        "resume or end another suspended container",
    )


def test_of_a_suspended_container_counts_what_the_driver_said() -> None:
    off = Suspension(SUSPENDED, "order", 1, {"GPU-0": GIB}, needed={"GPU-0": 2 * GIB})
    older = Suspension(SUSPENDED, "order", 1, {"GPU-0": 3 * GIB})
    records = [record("a", suspension=off), record("b", suspension=older), record("c")]
    assert host_room.kept_by(records, "x") == 5 * GIB
    assert host_room.kept_by(records, "a") == 3 * GIB


def write_group(folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_limits_of_a_group_and_of_those_above_count_without_their_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_group(tmp_path / "v2", memory__current="7", memory__max="max")
    used, cache = str(900 * MIB), f"anon 5\ninactive_file {200 * MIB}"
    box = {"memory__current": used, "memory__max": str(GIB), "memory__stat": cache}
    write_group(tmp_path / "v2" / "box", **box)
    v1 = {"memory__usage_in_bytes": used, "memory__limit_in_bytes": str(GIB)}
    write_group(tmp_path / "v1", **v1, memory__stat=f"total_inactive_file {MIB}")
    write_group(tmp_path / "v1" / "box", **{**v1, "memory__limit_in_bytes": str((1 << 63) - 4096)})
    places = {"": tmp_path / "v2", "memory": tmp_path / "v1"}
    monkeypatch.setattr(
        cgroup_folders, "mounted", lambda controller, path: f"{places[controller]}{path}"
    )
    found = host_room.limits_of({"0": "/box", "4memory": "/box", "3cpu,cpuacct": "/box"}, 7)
    assert found[:-1] == [
        Limit(f"{tmp_path}/v2/box", 324 * MIB, 7),
        Limit(f"{tmp_path}/v1", 125 * MIB, 7),
    ]
    host, available, needed = found[-1]
    assert host == HOST and available > 64 * MIB and needed == 7
