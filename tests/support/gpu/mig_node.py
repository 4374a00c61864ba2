"""A node of H100s in MIG mode; its claims and releases can be killed at any step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from support.softgpu.softgpu_host import SoftGpu
from vcuda_oci.container.identity import Owner
from vcuda_oci.fences import instance_claim
from vcuda_oci.host import host
from vcuda_oci.host.host import Host
from vcuda_oci.host.mig import Mig
from vcuda_oci.host.nvml import Library
from vcuda_oci.ledger import instance_records
from vcuda_oci.ledger.claim import Claim
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.placement.rules import Rules
from vcuda_oci.start import left_over
from vcuda_oci.system import files

H100 = ("--model", "NVIDIA H100 80GB HBM3", "--memory", "80GiB")


class MigNode:
    """driver: its software GPU. ledger: its records. gpus: their UUIDs."""

    def __init__(self, folder: Path, gpus: int = 1) -> None:
        mig = [word for gpu in range(gpus) for word in ("--mig", f"{gpu}=")]
        self.driver = SoftGpu(folder, "--gpus", str(gpus), *H100, *mig)
        self.cache = f"{folder}/state/host.json"
        self.ledger = Ledger(f"{folder}/state")
        facts = self.facts()
        self.library = facts.library
        self.gpus = [gpu.uuid for gpu in facts.gpus]

    def facts(self) -> Host:
        return host.load(str(self.driver.root), self.cache)

    def claim(self, id: str, core: int, memory_bytes: int = 0) -> Allocation:
        """Raises VcudaError: refused."""
        owner = Owner(id, id)
        claimant = os.getpid()
        wanted = Claim(owner, Request.of(core, memory_bytes or None), ["/bin/false"], claimant)
        return instance_claim.claim_instance(self.ledger, self.facts(), wanted, Rules())[0]

    def release(self, id: str) -> None:
        with self.ledger:
            self.ledger.remove(id)
        left_over.destroy_released(self.ledger)

    def killed(self, step: int, work: Callable[[], object]) -> bool:
        """Do `work` in a process that is killed before its step number `step`; whether it was."""
        pid = os.fork()
        if pid == 0:
            try:
                _die_before(step)
                work()
            except VcudaError:
                pass
            finally:
                os._exit(0)
        return os.waitpid(pid, 0)[1] == signal.SIGKILL

    def sweep(self, live: set[str]) -> None:
        """As the agent and the next claim do; `live`: ids of containers that run."""
        with self.ledger:
            self.ledger.sweep(lambda record: record.id in live)
        left_over.destroy_released(self.ledger)

    def instances(self) -> dict[str, tuple[str, int, int]]:
        """GPU, profile and place of each GPU instance, by the UUID of its MIG device."""
        found: dict[str, tuple[str, int, int]] = {}
        with Mig(self.library) as driver:
            for gpu in self.gpus:
                for one in driver.instances(gpu):
                    found[one.uuid or f"none{len(found)}"] = gpu, one.profile, one.start
        return found

    def held(self) -> set[str]:
        """UUIDs of the MIG devices that allocations name."""
        return {share.uuid for record in self.ledger.read()[0] for share in record.shares}

    def records(self) -> set[str]:
        return {held.id for held in instance_records.read(self.ledger.state_dir)}


def _die_before(step: int) -> None:
    """Kill this process before the step: an instance that is created or destroyed, or a file that
    is replaced or removed."""
    left = step

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            nonlocal left
            asks = len(arguments) > 1 and str(arguments[1]).startswith("nvml")
            left -= not asks or any(word in str(arguments[1]) for word in ("Create", "Destroy"))
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)

        return call

    Library.status = counted(Library.status)  # type: ignore[method-assign,assignment]
    files.replace = counted(files.replace)  # type: ignore[assignment]
    files.remove = counted(files.remove)  # type: ignore[assignment]
