"""``make fuzz [SECONDS=60] [ONLY=name]``: fuzzers of the launcher and of Python's parsers.

What they find stays in ``build/fuzz/found-<name>``, where the next run begins; what is wrong is
left as ``build/fuzz/<name>-crash-…``, and ``--show FILE NAME`` shows it again.
"""

from __future__ import annotations

import argparse
import os
import sys

# Run as `python -m tests.release.fuzz`; pytest finds the packages below tests/, as this does.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from release.fuzz import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="for each fuzzer")
    parser.add_argument("--show", metavar="FILE", help="one input instead")
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(run.NAMES)}; none: all")
    arguments = parser.parse_args()
    unknown = set(arguments.name) - set(run.NAMES)
    if unknown:
        parser.error(f"no fuzzer {', '.join(sorted(unknown))}; there is {', '.join(run.NAMES)}")
    failed = []
    for name in arguments.name or run.NAMES:
        print(f"[fuzz] {name}", flush=True)
        if arguments.show:
            status, output = run.fuzz(name, [arguments.show])
        else:
            found = f"{run.BUILT}/found-{name}"
            os.makedirs(found, exist_ok=True)
            limit = f"-max_total_time={arguments.seconds}"
            status, output = run.fuzz(name, [limit, found, run.corpus(name)])
        print("\n".join(output.splitlines()[-40 if status else -1 :]), flush=True)
        failed += [name] if status else []
    if failed:
        print(f"[fuzz] wrong: {', '.join(failed)}; the inputs are in {run.BUILT}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
