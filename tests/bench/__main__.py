"""``make bench [ONLY=<group>]``: measure, print, write ``build/bench.json``."""

from __future__ import annotations

import argparse
import os
import sys

# Run as `python -m tests.bench`; the tests' packages are found below tests/, as pytest finds them.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench import agent, crowd, ctr, result, scheduler, scrape, shim, start

GROUPS = {
    "start": start.measure,
    "ctr": ctr.measure,
    "agent": agent.measure,
    "scrape": scrape.measure,
    "shim": shim.measure,
    "crowd": crowd.measure,
    "scheduler": scheduler.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--only", choices=GROUPS)
    parser.add_argument("--json-out", default="build/bench.json")
    options = parser.parse_args()
    figures: list[result.Figure] = []
    for name, measure in GROUPS.items():
        if options.only in (None, name):
            found = measure(lambda text, name=name: print(f"[bench] {name}: {text}", flush=True))
            print(result.table(found), flush=True)
            figures += found
    result.write(figures, options.json_out)
    print(f"[bench] written: {options.json_out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
