"""Compare the driver's answers to misuse with the software GPU's, by the tests' table."""

from __future__ import annotations

import os
import sys

from bench.result import Figure
from gpu.machine import Machine, answer
from softgpu.calls.cuda_misuses import TABLE
from support.files import ROOT

AT_ONCE = 16
SECONDS = 240.0
MISUSES = os.path.join(ROOT, "tests", "softgpu", "calls", "cuda_misuses.py")


def misuse(machine: Machine) -> list[Figure]:
    """The note has each answer that differs. What was not answered in time is left out."""
    found = answer(machine.start(sys.executable, MISUSES, str(AT_ONCE), str(SECONDS)))
    different = [
        f"{name}: {said}, not {TABLE[name].error}"
        for name, said in found.items()
        if said != TABLE[name].error
    ]
    late = "" if len(found) == len(TABLE) else f", {len(TABLE)} asked"
    unit = f"of {len(found)}{late}"
    note = "; ".join(different)
    return [Figure("judge.answers that differ", len(different), unit, 0, {}, note)]
