"""``make gpu``: asks a GPU what only hardware can answer, and keeps the figures."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, TextIO

# Run as `python -m tests.gpu`; the tests' packages are found below tests/, as pytest finds them.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "oci"))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench import result
from gpu import frameworks, judge, memory, overhead, report, suspend
from gpu.fences import fences, mps, mps_static, mps_v3
from gpu.machine import Card, Machine, UnmeasuredError
from gpu.time import clock, compute, neighbours, utilisation

ROUNDS = 5
SECONDS = 6
CLOCK_SECONDS = 2
# Where these are missed, the slice is not what it says it is.
MUST_HOLD = ("memory.limit", "memory.nvml")


def asked(machine: Machine, options: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """By question, what answers it."""
    timed: list[compute.Compute] = []

    def calibrated() -> compute.Compute:
        if not timed:
            timed.append(compute.Compute(machine, options.seconds))
        return timed[0]

    def ask(*questions: clock.Asked) -> list[Any]:
        program = machine.compiled(clock.PROBE)
        return machine.ask(program, *(one.command(calibrated().ns_per_step) for one in questions))

    seconds = min(options.seconds, CLOCK_SECONDS)
    return {
        "memory.limit": lambda: memory.limit(machine),
        "memory.nvml": lambda: memory.nvml(machine),
        "memory.context": lambda: memory.context(machine),
        "memory.stack": lambda: memory.limits(machine),
        "memory.module": lambda: memory.modules(machine),
        "judge": lambda: judge.misuse(machine),
        "overhead.call": lambda: overhead.calls(machine, options.rounds),
        "overhead.training": lambda: overhead.training(machine, options.rounds, options.python),
        "frameworks": lambda: frameworks.memory(machine, options.python),
        "clock.slice": lambda: clock.slices(ask, seconds),
        "clock.preemption": lambda: clock.preemption(ask, seconds),
        "clock.streams": lambda: clock.streams(ask),
        "clock.copies": lambda: clock.copies(ask),
        "clock.submission": lambda: clock.submissions(ask),
        "events.beside": lambda: clock.beside(ask, seconds),
        "nvml.utilisation": lambda: utilisation.truth(calibrated()),
        "share.alone": lambda: compute.shares_alone(calibrated()),
        "share.two": lambda: neighbours.shares_of_two(calibrated()),
        "charged": lambda: compute.charged(calibrated()),
        "suspend.rate": lambda: suspend.rates(machine),
        "suspend.first call": lambda: suspend.first_call(machine),
        "suspend.refusal": lambda: suspend.refusals(machine),
        "suspend.no room": lambda: suspend.no_room(machine),
        "suspend.restore": lambda: suspend.refused_restore(machine),
        "suspend.killed": lambda: suspend.killed(machine),
        "mps": lambda: mps.words(machine),
        "namespaces": lambda: mps_v3.namespaces(machine),
        "partitions": lambda: mps_v3.partitions(machine),
        "static": lambda: mps_static.partitions(machine),
        "limits": lambda: fences.limits(machine),
        "mig": lambda: fences.mig(machine),
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu")
    parser.add_argument("--gpu", metavar="UUID", help="which; the first")
    parser.add_argument("--only", action="append", choices=[q.name for q in report.QUESTIONS])
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="of each measurement of time"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each comparison")
    parser.add_argument("--python", default="python3", help="an interpreter that has PyTorch")
    parser.add_argument("--json-out", default="build/gpu.json")
    parser.add_argument("--json", action="store_true", help="print it too, in place of the table")
    parser.add_argument("--report", help="write bench/hardware.md here")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    folder = tempfile.mkdtemp(prefix="vcuda-gpu-")
    try:
        return ask(folder, options)
    except UnmeasuredError as error:
        print(f"make gpu: {error}; run it on a machine with an NVIDIA GPU", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder)


def ask(folder: str, options: argparse.Namespace) -> int:
    machine = Machine(folder, options.gpu)
    if options.report and machine.card.software:
        print("make gpu: --report: a software GPU is no hardware; leave it out", file=sys.stderr)
        return 2
    notes = sys.stderr if options.json else sys.stdout
    warnings = report.warnings(machine.others, os.getloadavg()[0], os.cpu_count() or 1)
    for text in warnings:
        print(f"[gpu] {text}", file=notes)
    windows = f"windows of {options.seconds:g} s, {options.rounds} rounds"
    how = "; ".join(("", windows, *(text.partition(":")[0] for text in warnings)))
    card = machine.card._replace(how=how)
    figures: list[result.Figure] = []
    unmeasured: dict[str, str] = {}
    for name, measure in asked(machine, options).items():
        if options.only and name not in options.only:
            unmeasured[name] = "not asked"
            continue
        print(f"[gpu] {name}", flush=True, file=notes)
        try:
            figures += measure()  # type: ignore[arg-type]
        except (UnmeasuredError, OSError, ValueError, subprocess.SubprocessError) as error:
            unmeasured[name] = f"{error}"
        # What was measured stays, if a later question hangs.
        write_json(card, figures, unmeasured, options)
    keep(card, figures, unmeasured, options, notes)
    missed = [f.name for f in figures if f.name.startswith(MUST_HOLD) and not f.met]
    if missed:
        print(f"make gpu: {', '.join(missed)}: the limit does not hold", file=sys.stderr)
    return 1 if missed else 0


def write_json(
    card: Card,
    figures: list[result.Figure],
    unmeasured: dict[str, str],
    options: argparse.Namespace,
) -> str:
    kept = report.as_json(card, figures, unmeasured)
    os.makedirs(os.path.dirname(options.json_out) or ".", exist_ok=True)
    with open(options.json_out, "w", encoding="utf-8") as file:
        file.write(kept)
    return kept


def keep(
    card: Card,
    figures: list[result.Figure],
    unmeasured: dict[str, str],
    options: argparse.Namespace,
    notes: TextIO,
) -> None:
    kept = write_json(card, figures, unmeasured, options)
    if options.json:
        print(kept, end="")
    else:
        print(report.answers(figures, unmeasured))
    print(f"[gpu] written: {options.json_out}", file=notes)
    if options.report and not options.only:  # a page of one answer would forget the others
        with open(options.report, "w", encoding="utf-8") as file:
            file.write(report.page(card, figures, unmeasured))
        print(f"[gpu] written: {options.report}", file=notes)


if __name__ == "__main__":
    sys.exit(main())
