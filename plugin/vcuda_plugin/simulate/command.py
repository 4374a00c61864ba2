"""The command line of ``vcuda simulate``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError

from .. import dependencies
from . import fgd_trace

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
        description="Replays a trace of pods on a cluster that --nodes describes, with the "
        "scheduler extender's own code, and reports the result of each placement policy.",
        epilog=f"example: {PROGRAM} --generate fgd --nodes 100x8:H100:80GiB",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "trace",
        metavar="TRACE",
        nargs="?",
        help="file of pods: JSON lines, CSV, or CSV of Alibaba's public trace",
    )
    add(
        "--generate",
        metavar="NAME",
        choices=fgd_trace.MIXES,
        help="generate a trace: fgd is like Alibaba's public one, multi has more multi-GPU pods",
    )
    add(
        "--nodes",
        metavar="SPEC",
        action="append",
        required=True,
        help="nodes: COUNTxGPUS:MODEL:MEMORY[:LINKED][@POOL], such as 100x8:H100:80GiB:4, or a CSV "
        "file in the public trace's form; may be repeated",
    )
    add(
        "--quota",
        metavar="FILE",
        help="quotas: JSON as in the ConfigMap's key gpu_quota, or the whole ConfigMap as JSON",
    )
    add(
        "--policy",
        metavar="NAME",
        action="append",
        help="a placement policy to replay; may be repeated; default: all",
    )
    add(
        "--load",
        type=float,
        default=1.3,
        help="GPUs requested at a time, per GPU of the cluster; default 1.3",
    )
    add(
        "--pods",
        type=int,
        help="number of pods, which start and end; default: enough to fill the cluster; none ends",
    )
    add(
        "--seed",
        type=int,
        default=1,
        help="seed of --generate: the same seed gives the same result; default 1",
    )
    add(
        "--rebalance",
        action="store_true",
        help="also replay with moves on a node for each pod that fits nowhere",
    )
    add("--save", metavar="FILE", help="also write the pods to FILE, as JSON lines")
    add("--json", action="store_true", help="answer in JSON")
    return parser
