"""``make bench [ONLY=<group>]``: measure, print, write ``build/bench.json``."""

from __future__ import annotations

import argparse
import functools
import os
import sys

# Run as `python -m tests.bench`; the tests' packages are found below tests/, as pytest finds them.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench import advice, result, scheduler, shim, suspend
from bench.agent import agent, dra, scrape
from bench.fences import fences
from bench.shares import shares
from bench.starts import crowd, ctr, start

GROUPS = {
    "start": start.measure,
    "ctr": ctr.measure,
    "agent": agent.measure,
    "dra": dra.measure,
    "scrape": scrape.measure,
    "shim": shim.measure,
    "crowd": crowd.measure,
    "scheduler": scheduler.measure,
    "shares": shares.measure,
    "suspend": suspend.measure,
    "advice": advice.measure,
    "fences": fences.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--only", choices=GROUPS)
    parser.add_argument("--json-out", default="build/bench.json")
    parser.add_argument("--quick", action="store_true", help="shares: a short table")
    parser.add_argument("--every", action="store_true", help="shares: print every case")
    parser.add_argument("--model", action="append", default=[], help="shares: part of its name")
    parser.add_argument("--row", action="append", default=[], help="shares: part of its name")
    options = parser.parse_args()
    figures: list[result.Figure] = []
    groups = GROUPS | {
        "shares": functools.partial(
            shares.measure,
            quick=options.quick,
            models=options.model,
            only=options.row,
            every=options.every,
        )
    }
    for name, measure in groups.items():
        if options.only in (None, name):
            found = measure(lambda text, name=name: print(f"[bench] {name}: {text}", flush=True))
            print(result.table(found), flush=True)
            figures += found
    result.write(figures, options.json_out)
    print(f"[bench] written: {options.json_out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
