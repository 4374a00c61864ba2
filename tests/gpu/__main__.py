"""``make gpu``: asks a GPU what only hardware can answer, and keeps the figures."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable

# Run as `python -m tests.gpu`; the tests' packages are found below tests/, as pytest finds them.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "oci"))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench import result
from gpu import compute, judge, memory, overhead, report
from gpu.machine import Card, Machine, UnmeasuredError

ROUNDS = 5
# Where these are missed, the slice is not what it says it is.
MUST_HOLD = ("memory.limit", "memory.nvml")


def asked(machine: Machine, options: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """By question, what answers it."""
    timed: list[compute.Compute] = []

    def calibrated() -> compute.Compute:
        if not timed:
            timed.append(compute.Compute(machine, options.seconds))
        return timed[0]

    return {
        "memory.limit": lambda: memory.limit(machine),
        "memory.nvml": lambda: memory.nvml(machine),
        "memory.context": lambda: memory.context(machine),
        "memory.stack": lambda: memory.limits(machine),
        "memory.module": lambda: memory.modules(machine),
        "overhead.call": lambda: overhead.calls(machine, options.rounds),
        "overhead.training": lambda: overhead.training(machine, options.rounds, options.python),
        "share.alone": lambda: compute.shares_alone(calibrated()),
        "share.two": lambda: compute.shares_of_two(calibrated()),
        "events.beside": lambda: compute.intervals(calibrated()),
        "charged": lambda: compute.charged(calibrated()),
        "judge": lambda: judge.misuse(machine),
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu")
    parser.add_argument("--gpu", metavar="UUID", help="which; the first")
    parser.add_argument("--only", action="append", choices=[q.name for q in report.QUESTIONS])
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement of time")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each comparison")
    parser.add_argument("--python", default="python3", help="an interpreter that has PyTorch")
    parser.add_argument("--json-out", default="build/gpu.json")
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
    if machine.others:
        print(
            f"[gpu] {machine.others} other processes use this GPU: figures of time are theirs too"
        )
    figures: list[result.Figure] = []
    unmeasured: dict[str, str] = {}
    for name, measure in asked(machine, options).items():
        if options.only and name not in options.only:
            unmeasured[name] = "not asked"
            continue
        print(f"[gpu] {name}", flush=True)
        try:
            figures += measure()  # type: ignore[arg-type]
        except UnmeasuredError as error:
            unmeasured[name] = str(error)
    keep(machine.card, figures, unmeasured, options)
    missed = [f.name for f in figures if f.name.startswith(MUST_HOLD) and not f.met]
    if missed:
        print(f"make gpu: {', '.join(missed)}: the limit does not hold", file=sys.stderr)
    return 1 if missed else 0


def keep(
    card: Card,
    figures: list[result.Figure],
    unmeasured: dict[str, str],
    options: argparse.Namespace,
) -> None:
    print(result.table(figures))
    for name, reason in unmeasured.items():
        print(f"{name:34} unmeasured: {reason}")
    write(card, figures, unmeasured, options.json_out)
    print(f"[gpu] written: {options.json_out}")
    if options.report and not options.only:  # a page of one answer would forget the others
        with open(options.report, "w", encoding="utf-8") as file:
            file.write(report.page(card, figures, unmeasured))
        print(f"[gpu] written: {options.report}")


def write(card: Card, figures: list[result.Figure], unmeasured: dict[str, str], path: str) -> None:
    rows = [{**dataclasses.asdict(figure), "met": figure.met} for figure in figures]
    kept = {"device": card._asdict(), "figures": rows, "unmeasured": unmeasured}
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(kept, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
