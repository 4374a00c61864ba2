"""`vcuda limit` on a node: new shares and refusals."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import struct
from typing import Any

import pytest

from support.files import write
from support.ledger.samples import GIB, gpus, host, pod_owner, record
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_hook.cli import main
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import claim
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Request
from vcuda_oci.model.suspension import SUSPENDED, Suspension
from vcuda_oci.pages import layout, limits, page_reader
from vcuda_oci.placement.rules import Rules
from vcuda_oci.start import apply_share

FACTS = Host("", "600.1", "/usr/lib", gpus(16, 8))


class Node:
    """Containers that hold shares of two GPUs, of 16 and 8 GiB."""

    def __init__(self, folder: str, overcommit: float = 1) -> None:
        self.ledger = Ledger(folder + "/state")
        self.runtime = FakeRuntime(folder + "/bin")
        lines = f'state-dir = "{folder}/state"\nmemory-overcommit = "{overcommit}"\n'
        self.config = write(folder + "/config.toml", lines)

    def add_record(
        self, id: str, *shares: GpuShare, status: str = "running", **more: Any
    ) -> Allocation:
        allocation = record(id, shares=list(shares), runtime=self.runtime.words, **more)
        if status:
            self.runtime.set_state(id, status)
        with self.ledger:
            self.ledger.write(allocation, limits.page_of(allocation))
        return allocation

    def uses(self, id: str, held_bytes: int) -> Any:
        """A process that holds `held_bytes`; it lives until the result is closed."""
        usage = open(f"{self.ledger.containers}/{id}/usage", "r+b")  # noqa: SIM115
        at = {name: at for name, at, _ in layout.offsets()}
        slot = at["usage.slot"]
        for field, code, value in (
            ("usage.slots_used", "=I", 1),
            ("usage_slot.pid", "=I", 7),
            ("usage_slot.held_bytes", "=Q", held_bytes),
        ):
            usage.seek(at[field] + (slot if field.startswith("usage_slot") else 0))
            usage.write(struct.pack(code, value))
        usage.flush()
        lock = struct.pack("hhqqi4x", 1, 0, layout.USAGE_LOCK_BASE, 1, 0)
        fcntl.fcntl(usage, 37, lock)  # F_OFD_SETLK
        return usage

    def vcuda(self, *words: str) -> int:
        return main.main(["--config", self.config, *words])

    def share(self, id: str, at: int = 0) -> GpuShare:
        """The share in the record, which must equal that of the page."""
        allocation = self.ledger.get(id)
        assert allocation
        assert allocation.becoming is None
        page = self.page(id)
        assert page.sequence % 2 == 0
        assert layout.limits_page(page.gpus) == limits.page_of(allocation.replaced(suspension=None))
        return allocation.shares[at]

    def page(self, id: str) -> page_reader.Limits:
        with open(f"{self.ledger.containers}/{id}/limits", "rb") as file:
            return page_reader.read_limits(file.read())


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_share, "host_of", lambda settings: FACTS)


@pytest.fixture
def node(tmp_path: Any) -> Node:
    return Node(str(tmp_path))


ELASTIC = ("elastic", 60, 30, 5)
LOW = (*ELASTIC, False, "low")


@pytest.mark.parametrize(
    ("before", "words", "after"),
    [
        ((), "--core 50", (4, 50)),
        ((), "--memory 12GiB", (12, 30)),
        ((), "--memory 1GiB --core 1", (1, 1)),
        ((), "--policy elastic", (4, 30, "elastic", 100, 30, 0)),
        ((), "--policy elastic --core-limit 70 --priority 3", (4, 30, "elastic", 70, 30, 3)),
        ((), "--policy weighted --weight 7", (4, 30, "weighted", 100, 7, 0)),
        (ELASTIC, "--core 40", (4, 40, "elastic", 60, 40, 5)),
        (ELASTIC, "--core 70", (4, 70, "elastic", 70, 70, 5)),
        (ELASTIC, "--core-limit 30", (4, 30, "elastic", 30, 30, 5)),
        (ELASTIC, "--policy weighted", (4, 30, "weighted", 100, 100, 5)),
        (ELASTIC, "--policy fixed", (4, 30)),
        ((), "--core 100", (4, 100)),
        ((), "--latency low", (4, 30, "fixed", 30, 30, 0, False, "low")),
        (LOW, "--latency normal", (4, 30, "elastic", 60, 30, 5)),
        (LOW, "--policy fixed --core 20", (4, 20, "fixed", 20, 20, 0, False, "low")),
        (LOW, "--core 100", (4, 100)),
    ],
)
def test_a_share_becomes_what_is_asked_and_the_rest_of_it_stays(
    node: Node, capsys: Any, before: Any, words: str, after: Any
) -> None:
    old = GpuShare("GPU-0", 4 * GIB, 30, *before)
    memory, *rest = after
    new = GpuShare("GPU-0", memory * GIB, *rest)
    node.add_record("box", old)
    assert node.vcuda("limit", "box", *words.split(), "--dry-run") == 0
    assert node.share("box") == old
    assert node.vcuda("limit", "bo", *words.split()) == 0
    change = f"{new}; it had {old}\n".replace("GPU-0", "GPU 0")
    assert capsys.readouterr().out == f"box would have {change}box has {change}"
    assert node.share("box") == new
    assert node.vcuda("limit", "box", *words.split(), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "id": "box",
        "changed": False,
        "before": new.fields(),
        "after": new.fields(),
    }


def test_a_page_that_is_mapped_is_the_one_that_changes(node: Node) -> None:
    node.add_record("box", GpuShare("GPU-0", 4 * GIB, 30))
    with open(f"{node.ledger.containers}/box/limits", "rb") as mapped:
        assert node.vcuda("limit", "box", "--memory", "8GiB", "--core", "60") == 0
        (gpu,) = page_reader.read_limits(mapped.read()).gpus
    assert (gpu.memory_bytes, gpu.core_percent, gpu.rate_ppm) == (8 * GIB, 60, 600_000)


AT_MOST = "box: at most 50 % and 10.0 GiB of GPU-0 can be its own; "


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--core 51", AT_MOST + "51 % and 4.0 GiB asked; ask for less, or free a share"),
        ("--memory 11GiB", AT_MOST + "30 % and 11.0 GiB asked; ask for less, or free a share"),
        ("", "vcuda limit: nothing to change; use --core, --memory or --policy"),
        (
            "--core 101",
            "--core: core cannot be '101'; write a whole number from 1 to 100, percent of one GPU",
        ),
        (
            "--core 0",
            "--core: core cannot be '0'; write a whole number from 1 to 100, percent of one GPU",
        ),
        (
            "--memory lots",
            "--memory: memory cannot be 'lots'; write it like 5GiB, 1.5GiB, 512MiB",
        ),
        (
            "--weight 5",
            "GPU-0: weight means nothing with policy fixed; leave it out, or use weighted",
        ),
        (
            "--policy kind",
            "--policy: policy 'kind' is not offered; use fixed, elastic, weighted, best-effort or "
            "rotate",
        ),
        (
            "--policy rotate",
            "--policy: policy rotate cannot be given to a running container; start it with this "
            "policy",
        ),
        ("--latency none", "GPU-0: latency cannot be 'none'; use normal or low"),
        (
            "--policy elastic --core-limit 20",
            "--policy: core-limit cannot be '20'; write a whole number from 30 to 100",
        ),
        ("--core 40 --gpu 1", "box: has no share of '1'; use --gpu GPU-0"),
    ],
)
def test_invalid_or_excessive_limit_is_one_line_and_changes_nothing(
    node: Node, capsys: Any, words: str, line: str
) -> None:
    old = node.add_record("box", GpuShare("GPU-0", 4 * GIB, 30)).shares
    node.add_record("other", GpuShare("GPU-0", 6 * GIB, 50))
    assert node.vcuda("limit", "box", *words.split()) == 1
    assert capsys.readouterr() == ("", f"vcuda: {line}\n")
    assert [node.share("box")] == old


def test_a_dead_containers_share_is_taken_only_when_its_room_is_needed(
    node: Node,
) -> None:
    node.add_record("box", GpuShare("GPU-0", 4 * GIB, 30))
    node.add_record("dead", GpuShare("GPU-0", 12 * GIB, 50), status="")
    assert node.vcuda("limit", "box", "--core", "50") == 0
    assert node.vcuda("limit", "box", "--core", "90", "--dry-run") == 0
    assert node.ledger.get("dead")
    assert node.vcuda("limit", "box", "--core", "90") == 0
    assert (node.ledger.get("dead"), node.share("box").core_percent) == (None, 90)


def test_removed_container_is_refused(node: Node, capsys: Any) -> None:
    node.add_record("box", GpuShare("GPU-0", 4 * GIB, 30), status="")
    assert node.vcuda("limit", "box", "--core", "50") == 1
    assert capsys.readouterr().err == "vcuda: box: its container has ended; see 'vcuda ps'\n"


def test_beside_a_broken_record_a_share_may_shrink_but_not_grow(node: Node, capsys: Any) -> None:
    node.add_record("box", GpuShare("GPU-0", 4 * GIB, 30))
    path = write(f"{node.ledger.allocations}/odd.json", "{")
    assert node.vcuda("limit", "box", "--core", "31") == 1
    assert capsys.readouterr().err.startswith(f"vcuda: {path}: is not a whole record")
    assert node.vcuda("limit", "box", "--core", "29") == 0


def test_below_what_its_processes_hold_it_takes_force(node: Node, capsys: Any) -> None:
    node.add_record("box", GpuShare("GPU-0", 4 * GIB, 30))
    with node.uses("box", 3 * GIB):
        assert node.vcuda("limit", "box", "--memory", "3GiB") == 0
        assert node.vcuda("limit", "box", "--memory", "2GiB") == 1
        assert capsys.readouterr().err == (
            "vcuda: box: its processes hold 3 GiB; 2 GiB asked; free memory in it, or use --force: "
            "it then gets no more until it holds less\n"
        )
        assert node.vcuda("limit", "box", "--memory", "2GiB", "--force") == 0
    # Of a process that has died nothing counts.
    assert node.vcuda("limit", "box", "--memory", "1GiB") == 0
    assert node.share("box").memory_bytes == GIB


def test_the_named_one_of_several_gpus_changes(node: Node, capsys: Any) -> None:
    whole, half = GpuShare("GPU-1", 8 * GIB, 100), GpuShare("GPU-0", 8 * GIB, 50)
    node.add_record("box", whole, half)
    assert node.vcuda("limit", "box", "--core", "60") == 1
    line = "vcuda: box: has shares of 2 GPUs; use --gpu GPU-1 or GPU-0\n"
    assert capsys.readouterr().err == line
    assert node.vcuda("limit", "box", "--core", "60", "--gpu", "GPU-0") == 0
    # A whole GPU that shrinks is one that others may share.
    assert node.vcuda("limit", "box", "--core", "40", "--memory", "2GiB", "--gpu", "1") == 0
    assert node.share("box", 0) == GpuShare("GPU-1", 2 * GIB, 40)
    assert node.share("box", 1) == GpuShare("GPU-0", 8 * GIB, 60)


def test_the_beginning_of_a_uuid_names_the_share_that_changes(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    uuids = ("GPU-5a01", "GPU-5b02")
    named = [Gpu(uuid, at, at, 16 * GIB, "Soft") for at, uuid in enumerate(uuids)]
    monkeypatch.setattr(
        apply_share, "host_of", lambda settings: Host("", "600.1", "/usr/lib", named)
    )
    node.add_record("box", *(GpuShare(uuid, GIB, 50) for uuid in uuids))
    assert node.vcuda("limit", "box", "--core", "60", "--gpu", "GPU-5b") == 0
    assert [node.share("box", at).core_percent for at in (0, 1)] == [50, 60]
    assert node.vcuda("limit", "box", "--core", "60", "--gpu", "GPU-5") == 1
    assert capsys.readouterr().err == (
        "vcuda: box: 'GPU-5' begins the UUIDs of 2 of its GPUs; use --gpu GPU-5a01 or GPU-5b02\n"
    )


def test_a_named_slice_changes_as_containers_do(node: Node) -> None:
    node.add_record("cdi@train", GpuShare("GPU-0", 4 * GIB, 30), status="", container_id="")
    allocation = node.ledger.get("cdi@train")
    assert allocation
    allocation.runtime = []
    with node.ledger:
        node.ledger.record(allocation)
    assert node.vcuda("limit", "cdi@train", "--memory", "6GiB") == 0
    assert node.share("cdi@train") == GpuShare("GPU-0", 6 * GIB, 30)


def test_managed_memory_grows_into_the_overcommit_and_other_memory_does_not(
    tmp_path: Any, capsys: Any
) -> None:
    node = Node(str(tmp_path), overcommit=2)
    node.add_record("moves", GpuShare("GPU-0", 10 * GIB, 30, managed=True))
    node.add_record("stays", GpuShare("GPU-0", 4 * GIB, 30))
    assert node.vcuda("limit", "moves", "--memory", "16GiB") == 0
    assert node.share("moves").managed
    assert node.vcuda("limit", "stays", "--memory", "5GiB") == 1
    assert "at most 70 % and 4.0 GiB of GPU-0" in capsys.readouterr().err
    assert node.vcuda("limit", "stays", "--memory", "3GiB") == 0


def test_a_restarted_container_of_a_pod_keeps_what_it_was_given(node: Node) -> None:
    facts, wanted = host(16), Request.of(30, 4 * GIB)
    node.runtime.set_state("sandbox1", "running")
    for id, core in (("c1", 30), ("c2", 60)):
        allocation, is_new = claim.claim(
            node.ledger,
            facts,
            claim.Claim(pod_owner(id), wanted, node.runtime.words, 1 << 30),
            Rules(),
        )
        assert (allocation.shares[0].core_percent, is_new) == (core, id == "c1")
        assert node.vcuda("limit", allocation.id, "--core", "60", "--memory", "8GiB") == 0
    assert node.share("pod-uid1.main") == GpuShare("GPU-0", 8 * GIB, 60)


def _grow(config: str, id: str, core: int) -> None:
    apply_share.host_of = lambda settings: FACTS
    raise SystemExit(main.main(["--config", config, "limit", id, "--core", str(core)]))


def test_many_that_grow_at_once_never_hold_more_than_there_is(node: Node) -> None:
    """Of ten that each have 4 % and want 31, two can have them."""
    ids = [f"box{number}" for number in range(10)]
    for id in ids:
        node.add_record(id, GpuShare("GPU-0", GIB, 4))
    context = multiprocessing.get_context("fork")
    all_of_them = [context.Process(target=_grow, args=(node.config, id, 31)) for id in ids]
    for process in all_of_them:
        process.start()
    for process in all_of_them:
        process.join()
    assert sorted(process.exitcode or 0 for process in all_of_them) == [0, 0] + [1] * 8
    assert sorted(node.share(id).core_percent for id in ids) == [4] * 8 + [31] * 2


def test_suspended_container_keeps_its_promise_and_no_less_than_it_holds(
    node: Node, capsys: Any
) -> None:
    off = Suspension(SUSPENDED, "order", 1, {"GPU-0": 3 * GIB})
    node.add_record("box", GpuShare("GPU-0", 4 * GIB, 30), suspension=off)
    node.add_record("other", GpuShare("GPU-0", 8 * GIB, 40))
    assert node.vcuda("limit", "box", "--memory", "8GiB", "--core", "60") == 0
    assert node.share("box") == GpuShare("GPU-0", 8 * GIB, 60)
    capsys.readouterr()
    assert node.vcuda("limit", "other", "--memory", "9GiB") == 1
    assert node.vcuda("limit", "box", "--memory", "9GiB") == 1
    assert node.vcuda("limit", "box", "--memory", "2GiB") == 1
    assert capsys.readouterr().err == (
        "vcuda: other: at most 40 % and 8.0 GiB of GPU-0 can be its own; 40 % and 9.0 GiB asked; "
        "ask for less, or free a share\n"
        "vcuda: box: at most 60 % and 8.0 GiB of GPU-0 can be its own; 60 % and 9.0 GiB asked; "
        "ask for less, or free a share\n"
        "vcuda: box: its processes hold 3 GiB; 2 GiB asked; free memory in it, or use --force: "
        "it then gets no more until it holds less\n"
    )
    held = node.ledger.get("box")
    assert held
    assert held.suspension == off


def test_answers_and_refusals_have_the_engines_name(node: Node, tmp_path: Any, capsys: Any) -> None:
    id = "e" * 64
    path = write(f"{tmp_path}/{id}/config.v2.json", json.dumps({"ID": id, "Name": "/web"}))
    node.add_record(id, GpuShare("GPU-0", GIB, 30), engine={"file": path})
    assert node.vcuda("limit", "web", "--core", "40") == 0
    assert capsys.readouterr().out.startswith("web has 40 %")
    assert node.vcuda("limit", "web", "--memory", "100GiB") == 1
    assert capsys.readouterr().err.startswith("vcuda: web: ")
    assert node.vcuda("limit", "web", "--core", "40", "--json") == 0
    assert json.loads(capsys.readouterr().out)["id"] == id
