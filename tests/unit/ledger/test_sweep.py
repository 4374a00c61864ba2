"""The agent's sweep: a container that surely lives is not asked for, one that is gone gives
back."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess

import pytest

from support.files import write
from support.ledger.samples import host as node
from support.ledger.samples import record
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger import claim, liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.pages import layout, limits
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import files
from vcuda_plugin.agent.ledger import sweep
from vcuda_plugin.agent.ledger.records import Records

MINE = (os.getpid(), liveness.start_time(os.getpid()))
RUNC = ("state.json", "init_process_pid", "init_process_start")
CRUN = ("status", "pid", "process-start-time")


class Host:
    """A ledger, and a runtime that remembers what it was asked."""

    def __init__(self, folder):
        self.runtime, self.root = FakeRuntime(folder / "runtime"), folder / "root"
        self.asked = folder / "asked"
        command = f'#!/bin/sh\nfor id; do :; done\necho "$id" >>{self.asked}\n'
        write(self.runtime.folder + "/asks", command + f'exec {self.runtime.path} "$@"\n')
        os.chmod(self.runtime.folder + "/asks", 0o755)
        self.ledger = Ledger(str(folder / "state"))

    def add_record(self, id, sandbox=""):
        allocation = record(id)
        allocation.container_id = id
        allocation.runtime = [self.runtime.folder + "/asks", "--root", str(self.root)]
        allocation.claimant = [0, 0]
        allocation.pod = {"uid": "u", "sandbox_id": sandbox} if sandbox else {}
        with self.ledger:
            self.ledger.write(allocation, limits.page_of(allocation))

    def notes(self, id, notes, pid, started):
        os.makedirs(self.root / id)
        name, pid_key, start_key = notes
        write(str(self.root / id / name), json.dumps({pid_key: pid, start_key: started}))

    def was_asked(self):
        return self.asked.read_text().split() if self.asked.exists() else []


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.mark.parametrize("notes", [RUNC, CRUN], ids=["runc", "crun"])
def test_a_container_with_a_running_first_process_costs_no_question(host, notes):
    host.add_record("lives")
    host.notes("lives", notes, *MINE)
    host.add_record("between-restarts", sandbox="pause")
    host.notes("pause", notes, *MINE)
    assert sweep.sweep(Records(host.ledger.state_dir)) == []
    assert host.was_asked() == []


@pytest.mark.parametrize("notes", [RUNC, CRUN], ids=["runc", "crun"])
def test_refused_claim_asks_the_runtime_only_of_containers_that_may_be_dead(host, notes):
    """The ledger's lock is held meanwhile, and each question starts the runtime."""
    for number in range(20):
        host.add_record(f"lives-{number}")
        host.notes(f"lives-{number}", notes, *MINE)
    host.add_record("no-notes-yet")
    host.runtime.set_state("no-notes-yet", "created")
    whole, runtime = Request.of(100), [host.runtime.path]
    with pytest.raises(VcudaError, match="0 of 1 GPUs are wholly free"):
        claim.claim(
            host.ledger,
            node(16),
            claim.Claim(Owner("new", "new"), whole, runtime, os.getpid()),
            Rules(),
        )
    assert host.was_asked() == ["no-notes-yet"]
    assert len(os.listdir(host.ledger.allocations)) == 21


def test_while_no_record_changes_none_is_read_again(host, monkeypatch):
    for number in range(3):
        host.add_record(str(number))
        host.notes(str(number), RUNC, *MINE)
    # Long ago, so that the ledger is known not to have changed since.
    os.utime(host.ledger.allocations, ns=(1, 1))
    records, read, original = Records(host.ledger.state_dir), [], files.read
    sweep.sweep(records)
    monkeypatch.setattr(
        files, "read", lambda path, *rest: read.append(path) or original(path, *rest)
    )
    sweep.sweep(records)
    assert [path for path in read if path.startswith(host.ledger.allocations)] == []
    host.add_record("new")
    assert sweep.sweep(records) == ["new"]


def test_only_ended_containers_release_after_the_runtime_confirms(host):
    host.add_record("gone")
    host.add_record("stopped")
    host.notes("stopped", RUNC, MINE[0], MINE[1] + 1)
    host.runtime.set_state("stopped", "stopped")
    host.add_record("created")
    host.runtime.set_state("created", "created")
    host.add_record("lives")
    host.notes("lives", RUNC, *MINE)
    assert sorted(sweep.sweep(Records(host.ledger.state_dir))) == ["gone", "stopped"]
    assert sorted(set(host.was_asked())) == ["created", "gone", "stopped"]
    assert sorted(os.listdir(host.ledger.containers)) == ["created", "lives"]
    assert sweep.sweep(Records(host.ledger.state_dir)) == []


def test_no_container_counts_as_ended_without_the_runtimes_state(host):
    """An agent in a pod, that was not given the folder; its image may have a runtime of its own."""
    host.add_record("elsewhere")
    assert not host.root.exists()
    assert sweep.sweep(Records(host.ledger.state_dir)) == []
    assert host.was_asked() == []


@pytest.mark.parametrize("notes", ["", "[]", "{", '{"init_process_pid": "1"}', "[" * 100_000])
def test_notes_that_say_nothing_prove_nothing(host, notes):
    host.add_record("odd")
    os.makedirs(host.root / "odd")
    write(str(host.root / "odd/state.json"), notes)
    host.runtime.set_state("odd", "running")
    assert sweep.sweep(Records(host.ledger.state_dir)) == []
    assert host.was_asked() == ["odd"]


def test_page_extended_by_its_container_is_truncated(host):
    assert sweep.sweep(Records(host.ledger.state_dir)) == []  # nothing was ever claimed
    host.add_record("box")
    page = host.ledger.containers + "/box/usage"
    os.truncate(page, 1 << 30)
    assert sweep.sweep(Records(host.ledger.state_dir)) == []
    assert os.path.getsize(page) == layout.USAGE_SIZE


@pytest.mark.parametrize("is_pod", [False, True], ids=["a container", "a pod's sandbox"])
def test_the_end_of_a_first_process_is_swept_at_once(host, monkeypatch, is_pod):
    """No sweep but the first is due while the test runs."""
    monkeypatch.setattr(sweep, "PERIOD_SECONDS", 3600)
    with subprocess.Popen(["sleep", "100"]) as first:
        host.add_record("box", sandbox="pause" if is_pod else "")
        host.notes("pause" if is_pod else "box", RUNC, first.pid, liveness.start_time(first.pid))
        asyncio.run(asyncio.wait_for(swept_after_the_end(host, first), 60))


def test_end_of_a_pinned_sandbox_is_swept_soon(host, monkeypatch, tmp_path):
    """As under CRI-O, after the end of its container. No sweep but the first is due."""
    monkeypatch.setattr(sweep, "PERIOD_SECONDS", 3600)
    monkeypatch.setattr(sweep, "FOLLOW_SECONDS", 0.02)
    pinned = tmp_path / "utsns"
    pinned.touch()
    host.add_record("box", sandbox="pause")
    with host.ledger:
        allocation = host.ledger.get("box")
        allocation.pod["sandbox_file"] = str(pinned)
        host.ledger.write(allocation, limits.page_of(allocation))
    host.notes("box", RUNC, MINE[0], MINE[1] + 1)
    first, swept = sweep.sweep, []
    monkeypatch.setattr(sweep, "sweep", lambda known: swept.append(first(known)) or swept[-1])

    async def run():
        running = asyncio.ensure_future(sweep.run(host.ledger.state_dir))
        while not swept:
            await asyncio.sleep(0.01)
        pinned.unlink()
        while host.ledger.get("box"):
            await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert swept == [[], ["box"]]


async def swept_after_the_end(host, first):
    running = asyncio.ensure_future(sweep.run(host.ledger.state_dir))
    while not has_pidfd_of(first.pid):
        await asyncio.sleep(0.01)
    assert host.ledger.get("box")
    first.kill()
    first.wait()
    while host.ledger.get("box"):
        await asyncio.sleep(0.01)
    running.cancel()


def has_pidfd_of(pid):
    """Whether this program follows the process."""
    for name in os.listdir("/proc/self/fdinfo"):
        try:
            with open(f"/proc/self/fdinfo/{name}") as file:
                if f"\nPid:\t{pid}\n" in file.read():
                    return True
        except OSError:
            continue
    return False
