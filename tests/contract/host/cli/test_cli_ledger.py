"""`vcuda ps` and `inspect` on a ledger with every kind of tenant."""

from __future__ import annotations

import fcntl
import json
import os
import struct
from typing import Any

import pytest

from support.files import write
from support.ledger.samples import GIB, gpus, record
from support.ledger.tenants import Tenants
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_hook.cli import main
from vcuda_hook.live import turn_figures, usage
from vcuda_hook.show import show
from vcuda_oci.host.host import Host
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.pages import layout, limits

MIB = 1 << 20


class Node:
    """A state folder, its settings file, and a fake runtime."""

    def __init__(self, folder: str) -> None:
        self.ledger = Ledger(folder + "/state")
        self.runtime = FakeRuntime(folder + "/bin")
        self.config = write(
            folder + "/config.toml", f'state-dir = "{folder}/state"\ndriver-root = "{folder}/gpu"\n'
        )

    def add_record(
        self, allocation: Allocation, status: str = "running", context_bytes: int = 0
    ) -> Allocation:
        allocation.runtime = self.runtime.words
        if status:
            self.runtime.set_state(allocation.container_id, status)
        with self.ledger:
            self.ledger.write(allocation, limits.page_of(allocation, context_bytes=context_bytes))
        return allocation

    def breaks(self, id: str) -> None:
        write(f"{self.ledger.allocations}/{id}.json", '{"version":1,"id":"' + id)

    def vcuda(self, *words: str) -> int:
        return main.main(["--config", self.config, *words])


def node_with(tmp_path: Any, monkeypatch: Any) -> Node:
    """With two GPUs, that no process reads for long."""
    facts = Host("", "600.1", "/usr/lib", gpus(16, 8))
    monkeypatch.setattr(show.host, "load", lambda *_: facts)  # type: ignore[attr-defined]
    monkeypatch.setattr(usage, "SAMPLE_SECONDS", 0.0)
    return Node(str(tmp_path))


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Node:
    return node_with(tmp_path, monkeypatch)


HOSTILE = "a\x1b[2Jb\rc\x07d\x08e\x9bf\u202eg\nforged  running"


@pytest.mark.parametrize("words", [["ps"], ["ps", "--wide"], ["inspect", "box"]])
def test_control_characters_in_a_name_are_replaced(
    node: Node, capsys: Any, words: list[str]
) -> None:
    names = {"namespace": "ml", "name": HOSTILE, "container": HOSTILE}
    node.add_record(record("box", container_id="box", pod={"uid": "u", "sandbox_id": "s", **names}))
    assert node.vcuda(*words) == 0
    printed = capsys.readouterr().out
    assert "a?[2Jb?c?d?e?f?g?forged" in printed
    lines = printed.split("\n")
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("forged") for line in lines)


def test_ps_lists_the_shares_of_each_container(node: Node, capsys: Any) -> None:
    node.add_record(record("box"))
    pod = {"uid": "u", "namespace": "ml", "name": "train", "container": "main", "sandbox_id": "s"}
    node.add_record(record("pod-u.main", container_id="c1", pod=pod), "stopped")
    node.add_record(record("f" * 64, shares=[GpuShare("GPU-1", GIB, 10)]), "")
    assert node.vcuda("ps", "--wide") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "CONTAINER",
        "box",
        "ffffffffffff",
        "ml/train/main",
    ]
    assert lines[1].split()[1:-2] == [
        "0",
        "GPU-0",
        "30",
        "%",
        "0",
        "%",
        "0",
        "%",
        "0",
        "B",
        "/",
        "4",
        "GiB",
        "0",
        "fixed",
        "turns",
        "running",
    ]
    assert lines[2].split()[1:-2] == [
        "1",
        "GPU-1",
        "10",
        "%",
        "0",
        "%",
        "0",
        "%",
        "0",
        "B",
        "/",
        "1",
        "GiB",
        "0",
        "fixed",
        "turns",
        "gone",
    ]
    assert "stopped" in lines[3]


def test_ps_and_inspect_show_the_policy(node: Node, capsys: Any) -> None:
    for id, policy, limit, weight, priority in [
        ("a", "elastic", 60, 30, 7),
        ("b", "weighted", 100, 500, 0),
        ("c", "best-effort", 100, 10, 0),
    ]:
        latency = "low" if id == "b" else "normal"
        share = GpuShare("GPU-0", GIB, 10, policy, limit, weight, priority, False, latency)
        node.add_record(record(id, shares=[share]))
    assert node.vcuda("ps", "--wide") == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split("turns")[0].split("  0  ")[-1].strip() for line in lines] == [
        "elastic to 60 %, priority 7",
        "weighted 500, low latency",
        "best-effort",
    ]
    assert node.vcuda("ps", "--json") == 0
    assert [
        (
            e["policy"],
            e["core_percent"],
            e["core_ceiling_percent"],
            e["weight"],
            e["priority"],
            e["latency"],
        )
        for e in json.loads(capsys.readouterr().out)
    ] == [
        ("elastic", 10, 60, 30, 7, "normal"),
        ("weighted", 10, 100, 500, 0, "low"),
        ("best-effort", 10, 100, 10, 0, "normal"),
    ]
    assert node.vcuda("inspect", "a", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["shares"][0]["policy"], printed["shares"][0]["priority"]) == ("elastic", 7)
    assert printed["limits"]["rate_until_ns"] == 0
    (gpu,) = printed["limits"]["gpus"]
    assert (gpu["policy"], gpu["core_ceiling_percent"], gpu["rate_ppm"]) == (
        layout.POLICY_ELASTIC,
        60,
        100_000,
    )


def test_a_process_that_lives_counts_and_a_dead_one_does_not(node: Node, capsys: Any) -> None:
    allocation = node.add_record(record("box"))
    path = f"{node.ledger.containers}/box/usage"
    slots = layout.USAGE_HEAD_SIZE + layout.MAX_GPUS * layout.USAGE_GPU_SIZE
    with open(path, "r+b") as page:
        page.seek(12)
        page.write(struct.pack("=I", 2))
        for slot, held in enumerate((GIB, 3 * GIB)):
            page.seek(slots + slot * layout.USAGE_SLOT_SIZE)
            page.write(struct.pack("=IIQII", 7 + slot, 1, 1, 0, 0) + struct.pack("=Q", held))
        page.flush()
        lock = struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, layout.USAGE_LOCK_BASE + 1, 1, 0)
        fcntl.fcntl(page, fcntl.F_OFD_SETLK, lock)
        assert node.vcuda("ps", "--json") == 0
        (entry,) = json.loads(capsys.readouterr().out)
        assert entry["memory_used_bytes"] == 3 * GIB
        assert [p["pid"] for p in usage.whole_page(node.ledger, allocation)["processes"]] == [8]
    assert node.vcuda("ps", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["memory_used_bytes"] == 0


def test_a_page_that_the_guest_made_longer_has_the_same_figures(node: Node, capsys: Any) -> None:
    node.add_record(record("box"))
    os.truncate(f"{node.ledger.containers}/box/usage", 1 << 40)
    assert node.vcuda("ps", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["core_used_percent"], entry["memory_used_bytes"]) == (0, 0)


@pytest.mark.parametrize("content", [b"", b"x" * 100_000], ids=["emptied", "overwritten"])
def test_a_page_that_the_guest_spoilt_is_no_harm(node: Node, content: bytes, capsys: Any) -> None:
    node.add_record(record("box"))
    write(f"{node.ledger.containers}/box/usage", content)
    assert node.vcuda("ps", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["core_used_percent"], entry["memory_used_bytes"]) == (None, None)
    assert node.vcuda("ps") == 0
    assert node.vcuda("inspect", "box") == 0


def test_a_broken_record_is_listed_last_with_exit_code_1(node: Node, capsys: Any) -> None:
    node.add_record(record("box"))
    node.breaks("half")
    for verb in ("ps", "gpus"):
        assert node.vcuda(verb) == 1
        captured = capsys.readouterr()
        assert "box" in captured.out or verb == "gpus"
        (line,) = captured.err.splitlines()
        assert line.startswith(f"vcuda: {node.ledger.allocations}/half.json: is not a whole record")
        assert line.endswith("run 'vcuda release half' if its container has ended")


def test_a_record_that_names_half_of_a_pod_is_shown(node: Node, capsys: Any) -> None:
    node.add_record(record("box", pod={"uid": "u", "name": "web"}))
    assert node.vcuda("ps") == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("?/web/?  ")


def test_a_container_whose_name_no_program_can_be_given_is_shown(node: Node, capsys: Any) -> None:
    node.add_record(record("box", container_id="a\0b"), status="")
    assert node.vcuda("ps", "--json") == 1
    out, err = capsys.readouterr()
    (entry,) = json.loads(out)
    assert (entry["id"], entry["status"]) == ("box", "unknown")
    assert err == (
        "vcuda: ps: the state of 1 of 1 containers is unknown: embedded null byte; "
        "run 'vcuda doctor'\n"
    )


def test_nothing_running_is_an_empty_list(node: Node, capsys: Any) -> None:
    assert node.vcuda("ps", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []
    assert not os.path.exists(node.ledger.state_dir), "looking made folders"


def test_context_memory_is_shown_apart_from_allocated_memory(node: Node, capsys: Any) -> None:
    allocation = node.add_record(record("box"), context_bytes=300 * MIB)
    path = f"{node.ledger.containers}/box/usage"
    with open(path, "r+b") as page:
        for slot, held, contexts in ((0, GIB, 2), (1, 0, 255), (2, 300 * MIB, 1)):
            at = layout.USAGE_HEAD_SIZE + layout.MAX_GPUS * layout.USAGE_GPU_SIZE
            page.seek(at + slot * layout.USAGE_SLOT_SIZE)
            figures = struct.pack("=16Q16Q16B", held, *[0] * 31, contexts, *[9] * 15)
            page.write(struct.pack("=IIQII", 7 + slot, 1, 1, 0, 0) + figures)
            lock = struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, layout.USAGE_LOCK_BASE + slot, 1, 0)
            if slot != 1:  # that one is dead
                fcntl.fcntl(page, fcntl.F_OFD_SETLK, lock)
        page.seek(12)
        page.write(struct.pack("=I", 3))
        page.flush()
        assert node.vcuda("ps", "--json") == 0
        (entry,) = json.loads(capsys.readouterr().out)
        keys = ("memory_used_bytes", "contexts", "context_bytes")
        assert [entry[key] for key in keys] == [GIB + 300 * MIB, 3, 900 * MIB]
        assert node.vcuda("ps", "--wide") == 0
        assert "1.3 GiB / 4 GiB  3, 900 MiB  fixed" in capsys.readouterr().out
        shown = usage.whole_page(node.ledger, allocation)
        assert [shown["gpus"][0][key] for key in ("contexts", "context_bytes")] == [3, 900 * MIB]
        assert [process["contexts"] for process in shown["processes"]] == [[2], [1]]


def test_inspect_shows_in_percent_what_is_used_and_granted(
    node: Node, tmp_path: Any, capsys: Any
) -> None:
    tenants = Tenants(str(tmp_path))
    node.runtime.set_state("box", "running")
    tenants.add_record("box", shares=[GpuShare("GPU-0", 4 * GIB, 30)], runtime=node.runtime.words)
    tenants.uses("box", held=GIB)
    assert node.vcuda("inspect", "box", "--json") == 0
    use = {"gpu_uuid": "GPU-0", "core_used_percent": 0, "waited_percent": 0}
    use.update(memory_used_percent=25, usage="told", held_seconds=None, lost_seconds=None)
    use.update(waited_for_turn_seconds=None, waited_for_share_seconds=None)
    answer = json.loads(capsys.readouterr().out)
    assert (answer["name"], answer["use"]) == ("box", [use])
    assert node.vcuda("inspect", "box") == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert printed[0] == "name: box" and "managed: no" in printed
    for line in ("core_percent: 30 %", "core_used_percent: 0 %", "memory_used_percent: 25 %"):
        assert line in printed
    assert "rate_ppm: 300000 (30 %)" in printed
    open(tenants.page("box"), "w").close()
    assert node.vcuda("inspect", "box") == 0
    assert "core_used_percent: -" in capsys.readouterr().out
    tenants.close()


def test_ps_and_inspect_show_turns_in_seconds(node: Node, tmp_path: Any, capsys: Any) -> None:
    tenants = Tenants(str(tmp_path))
    node.runtime.set_state("box", "running")
    for id in ("box", "alone"):
        tenants.add_record(id, runtime=node.runtime.words)
    tenants.turns(1, {"box": (4_000_000_000, 5_000_000_000, 6_000_000_000, 500_000_000)})
    seconds = dict(zip(turn_figures.TOTALS, (4, 5, 6, 0.5)))
    assert node.vcuda("ps", "--json") == 0
    alone, box = json.loads(capsys.readouterr().out)
    assert seconds.items() <= box.items()
    assert {box[key] for key in ("held_percent", "waits_for", "held_by")} == {None}
    assert dict.fromkeys(seconds).items() <= alone.items()
    assert node.vcuda("inspect", "box", "--json") == 0
    (use,) = json.loads(capsys.readouterr().out)["use"]
    assert seconds.items() <= use.items()


def named(node: Node, id: str, name: str, **more: Any) -> None:
    node.add_record(record(id, engine={"name": name} if name else {}, **more))


A, B = "a" * 64, "b" * 64


def test_a_name_finds_its_container_and_never_anothers(node: Node, capsys: Any) -> None:
    named(node, A, "web")
    named(node, B, "b" * 12)  # a user-given name that looks like an id
    named(node, "web-2", "train")
    named(node, "run-1", "web-2")  # another's id
    named(node, "twin-1", "twin")
    named(node, "twin-2", "twin")
    assert node.vcuda("ps", "--json") == 0
    shown = {entry["id"]: entry["name"] for entry in json.loads(capsys.readouterr().out)}
    assert shown == {
        **{A: "web", B: "b" * 12, "web-2": "train", "run-1": "run-1"},
        **{"twin-1": "twin-1", "twin-2": "twin-2"},
    }
    for word, id in ((A, A), ("a" * 5, A), ("web-2", "web-2"), ("train", "web-2")):
        assert node.vcuda("inspect", word, "--json") == 0
        assert json.loads(capsys.readouterr().out)["id"] == id
    assert node.vcuda("inspect", "web") == 1
    assert capsys.readouterr().err == (
        f"vcuda: web: may be web-2 (train), {A} (web); write more of the name, or the id\n"
    )
    assert node.vcuda("release", "twin") == 1
    assert "twin-1 (twin), twin-2 (twin)" in capsys.readouterr().err


def test_parts_of_a_pods_name_find_it_while_they_name_one_container(
    node: Node, capsys: Any
) -> None:
    for namespace, pod, container in (
        ("ml", "train", "main"),
        ("ml", "train", "log"),
        ("ops", "serve", "main"),
    ):
        names = {"namespace": namespace, "name": pod, "container": container}
        key = f"pod-{namespace}-{pod}.{container}"
        node.add_record(record(key, container_id="c-" + key, pod={"uid": "u", **names}))
    node.add_record(record("f" * 64, engine={"name": "main"}))
    for word, id in (
        ("ml/train/log", "pod-ml-train.log"),
        ("train/main", "pod-ml-train.main"),
        ("ops/serve", "pod-ops-serve.main"),
        ("serve", "pod-ops-serve.main"),
        ("main", "f" * 64),
    ):
        assert node.vcuda("inspect", word, "--json") == 0
        assert json.loads(capsys.readouterr().out)["id"] == id
    assert node.vcuda("release", "train") == 1
    assert capsys.readouterr().err == (
        "vcuda: train: may be pod-ml-train.log (ml/train/log), "
        "pod-ml-train.main (ml/train/main); write more of the name, or the id\n"
    )
    assert node.vcuda("inspect", "ml") == 1
    assert "no allocation of this id or name" in capsys.readouterr().err


def test_podman_lists_containers_that_it_removes_in_a_file_of_their_own(
    node: Node, tmp_path: Any, capsys: Any
) -> None:
    entries = [
        {"id": id, "names": [name], "metadata": json.dumps({"image-name": image})}
        for id, name, image in ((A, "web", "a.example/b:1"), (B, "batch", "bad\nimage"))
    ]
    path = write(f"{tmp_path}/containers.json", json.dumps(entries[:1]))
    write(f"{tmp_path}/volatile-containers.json", json.dumps([*entries[1:], {"id": 5}, None]))
    for id in (A, B):
        node.add_record(record(id, engine={"file": path}))
    assert node.vcuda("ps", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(e["name"], e["image"]) for e in shown] == [("web", "a.example/b:1"), ("batch", None)]


@pytest.mark.parametrize("name", ["\x1b[2J", "a/b", "x" * 129, "0123456789ab", "", "-rm", 5, None])
def test_a_name_that_no_engine_allows_is_not_shown(
    node: Node, tmp_path: Any, capsys: Any, name: Any
) -> None:
    path = write(f"{tmp_path}/{A}/config.v2.json", json.dumps({"ID": A, "Name": name}))
    node.add_record(record(A, engine={"file": path}))
    assert node.vcuda("ps", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "a" * 12


def test_a_file_that_is_no_list_of_names_names_nothing(
    node: Node, tmp_path: Any, capsys: Any
) -> None:
    path = f"{tmp_path}/names"
    for make in (lambda: os.mkfifo(path), lambda: write(path, "[" * 10_000), lambda: None):
        make()
        node.add_record(record(A, engine={"file": path}))
        assert node.vcuda("ps", "--json") == 0
        assert json.loads(capsys.readouterr().out)[0]["name"] == "a" * 12
        if os.path.lexists(path):
            os.unlink(path)


def test_inspect_takes_the_beginning_of_an_id(node: Node, capsys: Any) -> None:
    node.add_record(record("box-one"))
    assert node.vcuda("inspect", "box", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["id"], shown["status"]) == ("box-one", "running")
    assert shown["limits"]["gpus"][0]["memory_bytes"] == 4 * GIB
    assert shown["usage"]["gpus"][0]["held_bytes"] == 0
    node.add_record(record("box-two"))
    assert node.vcuda("inspect", "box") == 1
    assert capsys.readouterr().err == (
        "vcuda: box: may be box-one, box-two; write more of the name, or the id\n"
    )
    assert node.vcuda("inspect", "cat") == 1
    assert capsys.readouterr().err == (
        "vcuda: cat: no allocation of this id or name; see 'vcuda ps'\n"
    )
