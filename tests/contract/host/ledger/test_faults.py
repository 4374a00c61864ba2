"""SIGKILL at every single change loses nothing and leaves nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from support.files import write
from support.gpu.driver_root import DriverRoot
from support.ledger.faults import killed_at
from support.ledger.lease_holder import holding
from support.ledger.samples import GIB, host, left_in, pod_owner, shares_of
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_oci.container import bundle, request
from vcuda_oci.container.container import container_of
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger import liveness
from vcuda_oci.ledger.claim import Claim, claim
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.pages import page_reader
from vcuda_oci.placement.rules import Rules
from vcuda_oci.start import apply_share, main
from vcuda_oci.system import files, settings_file

NODE = host(16)
WHOLE = [GpuShare("GPU-0", 16 * GIB, 100)]
HALF = [GpuShare("GPU-0", 8 * GIB, 50)]


class Ledgers:
    def __init__(self, folder: Any) -> None:
        self.ledger = Ledger(f"{folder}/state")
        self.runtime = FakeRuntime(f"{folder}/runc")

    def claim(self, owner: Owner, core: int = 50) -> list[GpuShare]:
        allocation, _ = claim(
            self.ledger,
            NODE,
            Claim(owner, Request.of(core), self.runtime.words, os.getpid()),
            Rules(),
        )
        return allocation.shares

    def claim_in_a_child(self, owner: Owner) -> None:
        """By a process that has ended, as after the crash of a node's engine."""
        assert not killed_at(0, lambda: self.claim(owner))

    def release(self, id: str) -> None:
        with self.ledger:
            self.ledger.remove(id)

    def sweep(self) -> None:
        with self.ledger:
            self.ledger.sweep(liveness.is_alive)


@pytest.fixture
def ledgers(tmp_path: Any) -> Ledgers:
    return Ledgers(tmp_path)


def at_every_change(act: Callable[[], Any], check: Callable[[], None], before: Any = None) -> int:
    """Kill `act` at its first change, its second, …; how many there are."""
    at = 1
    while True:
        if before:
            before()
        killed = killed_at(at, act)
        check()
        if not killed:
            return at - 1
        at += 1


ME = Owner("me", "me")


def test_a_claim_that_is_killed_leaves_nothing_that_a_sweep_does_not_take(ledgers: Ledgers) -> None:
    def check() -> None:
        allocations, broken = ledgers.ledger.read()
        assert broken == []
        assert [held.shares for held in allocations] in ([], [HALF])
        ledgers.sweep()
        assert left_in(ledgers.ledger.state_dir) == []

    assert at_every_change(lambda: ledgers.claim(ME), check) > 10


def test_after_a_killed_claim_the_next_gets_the_whole_gpu_by_itself(ledgers: Ledgers) -> None:
    def check() -> None:
        assert ledgers.claim(Owner("next", "next"), 100) == WHOLE
        assert shares_of(ledgers.ledger) == {"next": WHOLE}
        ledgers.release("next")

    at_every_change(lambda: ledgers.claim(ME), check)


def test_a_killed_claim_can_be_made_again(ledgers: Ledgers) -> None:
    def check() -> None:
        assert ledgers.claim(ME) == HALF
        assert shares_of(ledgers.ledger) == {"me": HALF}
        ledgers.release("me")
        assert left_in(ledgers.ledger.state_dir) == []

    at_every_change(lambda: ledgers.claim(ME), check)


def test_a_release_that_is_killed_is_ended_by_the_next_sweep(ledgers: Ledgers) -> None:
    def check() -> None:
        assert ledgers.ledger.read()[1] == []
        ledgers.sweep()
        assert left_in(ledgers.ledger.state_dir) == []

    changes = at_every_change(
        lambda: ledgers.release("me"), check, before=lambda: ledgers.claim_in_a_child(ME)
    )
    assert changes >= 4  # the record, two pages, their folder


def test_a_sweep_that_is_killed_is_ended_by_the_next(ledgers: Ledgers) -> None:
    def before() -> None:
        ledgers.claim_in_a_child(ME)
        ledgers.claim_in_a_child(Owner("you", "you"))
        write(ledgers.ledger.containers + "/orphan/usage.new", "")

    def check() -> None:
        assert ledgers.ledger.read()[1] == []
        ledgers.sweep()
        assert left_in(ledgers.ledger.state_dir) == []

    assert at_every_change(ledgers.sweep, check, before) >= 10


def test_a_killed_take_over_leaves_the_pods_share(ledgers: Ledgers) -> None:
    ledgers.runtime.set_state("sandbox1", "running")
    ledgers.runtime.set_state("other", "running")
    ledgers.claim(Owner("other", "other"))
    ledgers.claim_in_a_child(pod_owner("c1"))
    both = {"other": HALF, "pod-uid1.main": HALF}
    count = 0

    def check() -> None:
        nonlocal count
        count += 1
        assert shares_of(ledgers.ledger) == both
        with pytest.raises(VcudaError, match="largest free share is 0 %"):
            ledgers.claim(Owner("third", "third"))
        assert_pages_whole(ledgers, "pod-uid1.main")
        ledgers.claim_in_a_child(pod_owner(f"again{count}"))
        assert shares_of(ledgers.ledger) == both

    assert at_every_change(lambda: ledgers.claim(pod_owner("c2")), check) > 10
    ledgers.runtime.remove("sandbox1")
    ledgers.sweep()
    assert left_in(ledgers.ledger.state_dir) == [
        "allocations/other.json",
        "containers/other",
        "containers/other/limits",
        "containers/other/usage",
    ]


def assert_pages_whole(ledgers: Ledgers, id: str) -> None:
    folder = f"{ledgers.ledger.containers}/{id}"
    with open(folder + "/limits", "rb") as limits, open(folder + "/usage", "rb") as usage:
        assert [gpu.uuid for gpu in page_reader.read_limits(limits.read()).gpus] == ["GPU-0"]
        assert page_reader.read_usage(usage.read()).processes == []


OLD = json.dumps({"old": "x" * 5000}).encode()
NEW = {"new": "y" * 5000}


def test_a_config_is_wholly_old_or_new_when_its_replacement_is_killed(tmp_path: Any) -> None:
    path = f"{tmp_path}/bundle/config.json"
    seen = set()

    def check() -> None:
        with open(path, "rb") as file:
            content = file.read()
        assert content == OLD or json.loads(content) == NEW
        seen.add(content == OLD)

    def before() -> None:
        write(path, OLD, 0o640)

    assert at_every_change(lambda: bundle.replace_config(path, NEW), check, before) >= 5
    bundle.replace_config(path, NEW)
    assert os.listdir(f"{tmp_path}/bundle") == ["config.json"]
    assert os.stat(path).st_mode & 0o777 == 0o640
    assert seen == {True, False}


def test_several_that_replace_one_config_take_turns(tmp_path: Any) -> None:
    """All write the same name beside it: without turns one would rename another's half file."""
    path = write(f"{tmp_path}/bundle/config.json", OLD)
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                for _ in range(100):
                    bundle.replace_config(path, {"of": [number] * 20_000})
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    with open(path) as file:
        assert len(set(json.load(file)["of"])) == 1
    assert os.listdir(f"{tmp_path}/bundle") == ["config.json"]


def test_a_lock_on_the_bundles_folder_holds_up_no_create(tmp_path: Any) -> None:
    """Any user with read access to a folder can lock it."""
    path = write(f"{tmp_path}/bundle/config.json", OLD)
    with holding("flock", os.path.dirname(path)):
        bundle.replace_config(path, NEW)
    with open(path) as file:
        assert json.load(file) == NEW


def test_wrapper_killed_anywhere_leaves_a_valid_config_and_no_share(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the cold cache on: host's facts, claim, edit."""
    write(f"{tmp_path}/libvcuda.so.1", "")
    monkeypatch.setattr(apply_share, "SHIM", f"{tmp_path}/libvcuda.so.1")
    root, runtime_ = DriverRoot(tmp_path / "driver"), FakeRuntime(tmp_path / "runc")
    ledger = Ledger(f"{tmp_path}/state")
    lines = f"state-dir = '{ledger.state_dir}'\ndriver-root = '{root.path}'"
    settings = settings_file.parse(lines, "/c")
    path = f"{tmp_path}/bundle/config.json"
    spec = {"annotations": {"vcuda.io/core": "100"}}
    old = json.dumps(spec).encode()
    new = set()

    def create() -> None:
        command = bundle.Command(["create", "--bundle", f"{tmp_path}/bundle", "me"])
        container = container_of(spec, "me", command.bundle)
        raw = request.find(container)
        assert raw
        creation = main.creation_of(command, runtime_.path, os.getpid())
        main.share_gpu(command, container, raw, settings, creation)

    def before() -> None:
        write(path, old)
        for name in ("host.json", "host.json.new"):
            files.remove(f"{ledger.state_dir}/{name}")

    def check() -> None:
        with open(path, "rb") as file:
            content = file.read()
        if content != old:
            new.add(content)
        write(path, old)
        assert not killed_at(0, create)
        assert shares_of(ledger) == {"me": WHOLE}
        with ledger:
            ledger.sweep(liveness.is_alive)
        assert left_in(ledger.state_dir) == ["host.json"]
        assert os.listdir(f"{tmp_path}/bundle") == ["config.json"]

    assert at_every_change(create, check, before) > 25
    assert len(new) == 1
