"""Compare the driver's answers to misuse with the software GPU's, by the tests' table."""

from __future__ import annotations

import os
import sys

from bench.result import Figure
from gpu.machine import Machine, answer
from softgpu.calls.cuda_misuses import TABLE
from support.files import ROOT

AT_ONCE = 16
MISUSES = os.path.join(ROOT, "tests", "softgpu", "calls", "cuda_misuses.py")


def differences(machine: Machine) -> dict[str, str]:
    """By misuse, what the driver answers where the table has another error."""
    found = answer(machine.start(sys.executable, MISUSES, str(AT_ONCE)))
    return {
        misuse: f"{found[misuse]}, not {expected.error}"
        for misuse, expected in TABLE.items()
        if found[misuse] != expected.error
    }


def misuse(machine: Machine) -> list[Figure]:
    different = differences(machine)
    for name, said in different.items():
        print(f"[gpu] {name}: {said}", flush=True)
    return [Figure("judge.answers that differ", len(different), f"of {len(TABLE)}", 0, {})]
