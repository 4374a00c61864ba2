"""Fuzzers of the state folder's files: records, the driver cache, a usage page."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any, NoReturn

from release.fuzz.properties import check_line
from support.files import write
from support.gpu.driver_root import DriverRoot
from support.ledger.samples import GIB, left_in, record
from support.ledger.samples import host as some_host
from vcuda_hook.live import status, usage
from vcuda_hook.show import ps
from vcuda_oci.container.identity import Owner
from vcuda_oci.edits import config_json, edits
from vcuda_oci.host import host as hosts
from vcuda_oci.host import requirements
from vcuda_oci.ledger import claim
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import capabilities, jsontree
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.pages import layout, limits, page_reader
from vcuda_oci.placement import choose
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import settings_file


def run_nothing(*words: Any, **_: Any) -> NoReturn:
    """Instead of a program that a record names: as if it could not be run."""
    for word in words[1] if len(words) > 1 else words[0]:
        if "\0" in word or b"\0" in os.fsencode(word):
            raise ValueError("embedded null byte")
    raise FileNotFoundError(2, "no such program")


class Record:
    """A record is whole or is reported, and no GPU is ever promised beyond what it has."""

    def __init__(self, folder: str) -> None:
        self.ledger, self.host = Ledger(folder + "/state"), some_host(16)
        lines = [f'state-dir = "{folder}/state"', f'driver-root = "{folder}"']
        self.settings = settings_file.load(write(folder + "/config.toml", "\n".join(lines)))
        os.posix_spawn = status.subprocess.Popen = run_nothing  # type: ignore[attr-defined]

    def __call__(self, content: bytes) -> None:
        again, more = Request.of(30, 4 * GIB), Request.of(60, 9 * GIB)
        for id, wanted in (("box", again), ("box", more), ("other", more)):
            write(f"{self.ledger.allocations}/{id}.json", content)
            allocations, broken = self.ledger.read()
            assert len(allocations) + len(broken) == 1
            self.check_shown()
            self.check_claim(wanted, broken)
            for left in os.listdir(self.ledger.allocations):
                os.unlink(f"{self.ledger.allocations}/{left}")
            with self.ledger:
                self.ledger.sweep(lambda _: False)
            assert left_in(self.ledger.state_dir) == []

    def check_shown(self) -> None:
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = ps.ps_of(self.settings)
        assert errors.getvalue().count("\n") == code <= 1

    def check_claim(self, wanted: Request, broken: list[tuple[str, str]]) -> None:
        owner, gpu, runtime = Owner("box", "box"), self.host.gpus[0], ["/nowhere"]
        try:
            mine = claim.Claim(owner, wanted, runtime, os.getpid())
            claim.claim(self.ledger, self.host, mine, Rules())
        except VcudaError as error:
            check_line(error)
            return
        assert not broken
        allocations, broken = self.ledger.read()
        shares = [share for held in allocations for share in held.shares if share.uuid == gpu.uuid]
        assert not broken
        assert sum(share.core_percent for share in shares) <= 100
        assert sum(share.memory_bytes for share in shares) <= gpu.memory_bytes


class HostCache:
    """What is kept of the driver is used, or looked for again, but never breaks a start.

    "@driver@" and "@nvml@" stand for what shows that the cache is not stale, @root@ for the root.
    """

    def __init__(self, folder: str) -> None:
        self.root, self.cache = DriverRoot(folder + "/driver").path, folder + "/state/host.json"
        hosts.load(self.root, self.cache)
        with open(self.cache, "rb") as file:
            kept = jsontree.loads(file.read().decode())
        self.keys = [
            (f'"@{part}@"'.encode(), jsontree.dumps(kept[part]["key"]).encode())
            for part in ("driver", "nvml")
        ]

    def __call__(self, content: bytes) -> None:
        for stands, key in self.keys:
            content = content.replace(stands, key)
        write(self.cache, content.replace(b"@root@", os.fsencode(self.root)))
        try:
            facts = hosts.load(self.root, self.cache)
            chosen = choose.choose(facts.gpus, [], Request.of(30), Rules())
            if isinstance(chosen, choose.Refused):
                assert chosen.reason.isprintable()
                return
            requirements.check({"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}, facts, facts.gpus)
            paths = edits.Paths("/shim", "/pages", ["/hook"], [])
            allocation = record(shares=chosen.shares)
            limits.page_of(allocation)
            asked = edits.edits_for(allocation, facts, paths, "/usr/lib64", capabilities.ALL)
            config_json.apply({}, asked)
        except VcudaError as error:
            check_line(error)


class UsagePage:
    """A page that its container wrote is shown with figures in it, or as telling nothing."""

    def __init__(self, folder: str) -> None:
        lines = [f'state-dir = "{folder}/state"', f'driver-root = "{folder}"']
        self.settings = settings_file.load(write(folder + "/config.toml", "\n".join(lines)))
        self.ledger = Ledger(self.settings.state_dir)
        with self.ledger:
            self.ledger.write(record(), limits.page_of(record()))

    def __call__(self, content: bytes) -> None:
        page = content.ljust(layout.USAGE_SIZE, content[-1:] or b"\0")
        for live in (None, frozenset(range(layout.MAX_PROCESSES))):
            try:
                page_reader.read_usage(page, live)
            except ValueError as error:
                assert str(error).isprintable()
        write(f"{self.ledger.containers}/box/usage", page)
        usage.SAMPLE_SECONDS = 0
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            # Its runtime is at no such path, so whether the container runs is unknown.
            assert ps.ps_of(self.settings) == 1
        assert len(out.getvalue().splitlines()) == 2
