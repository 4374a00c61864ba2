"""The command line of ``vcuda simulate``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError

from .. import dependencies
from . import fgd_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "vcuda simulate"


def main(argv: Sequence[str]) -> int:
    """Run the command. Return 0: done; 1: refused, with one line. Exit with 2: bad arguments."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if bool(arguments.trace) == bool(arguments.generate):
        parser.error("either TRACE or --generate; name one of them")
    try:
        # Imported late: --help works without the replay's dependencies.
        from .run import simulate
    except ModuleNotFoundError as error:
        dependencies.end_without(error, names.EXTENDER_PROGRAM)
    try:
        return simulate(arguments)
    except VcudaError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        PROGRAM,
        description="Replays a trace of pods on a described cluster through the scheduler "
        "extender's own code, and shows what each policy makes of it.",
        epilog=f"example: {PROGRAM} --generate fgd --nodes 100x8:H100:80GiB",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("trace", metavar="TRACE", nargs="?", help="pods, as JSON lines, CSV, or Alibaba's CSV")
    add(
        "--generate",
        metavar="NAME",
        choices=fgd_trace.MIXES,
        help="a trace like the public one: fgd; multi: more pods of it take several GPUs",
    )
    add(
        "--nodes",
        metavar="SPEC",
        action="append",
        required=True,
        help="COUNTxGPUS:MODEL:MEMORY[:LINKED][@POOL], such as 100x8:H100:80GiB:4, or a CSV file "
        "as the public trace has it; may be repeated",
    )
    add("--quota", metavar="FILE", help="JSON as in the key gpu_quota, or the ConfigMap as JSON")
    add("--policy", metavar="NAME", action="append", help="only these; default: all")
    add("--load", type=float, default=1.3, help="GPUs asked for at a time per GPU; default 1.3")
    add("--pods", type=int, help="so many, which come and go; default: enough, and they stay")
    add("--seed", type=int, default=1, help="default 1; the same seed gives the same answer")
    add("--save", metavar="FILE", help="write the pods there too, as JSON lines")
    add("--json", action="store_true", help="answer in JSON")
    return parser
