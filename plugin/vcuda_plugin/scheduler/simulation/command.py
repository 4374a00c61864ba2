"""``vcuda simulate``: its command line."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from vcuda_oci.errors import VcudaError

from . import fgd_trace, nodes, report, trace
from .fragmentation import Mix
from .policies import policies
from .replay import Replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .trace import TracePod

PROGRAM = "vcuda simulate"
_MOST_LOAD, _MOST_PODS = 100, 1_000_000


def main(argv: Sequence[str]) -> int:
    """0: done. 1: refused, with one line. 2: the command line makes no sense."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if bool(arguments.trace) == bool(arguments.generate):
        parser.error("name a TRACE, or --generate one")
    try:
        return _simulate(arguments)
    except VcudaError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        PROGRAM,
        description="Replays a trace of pods on a described cluster through the scheduler "
        "extender's own code, and tells what each policy makes of it.",
        epilog=f"example: {PROGRAM} --generate fgd --nodes 100x8:H100:80GiB",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("trace", metavar="TRACE", nargs="?", help="pods, as JSON lines or CSV")
    add("--generate", metavar="NAME", choices=["fgd"], help="a trace like a public one: fgd")
    add(
        "--nodes",
        metavar="SPEC",
        action="append",
        required=True,
        help="COUNTxGPUS:MODEL:MEMORY[:LINKED], such as 100x8:H100:80GiB:4; may be repeated",
    )
    add("--policy", metavar="NAME", action="append", help="only these; default: all")
    add("--load", type=float, default=1.3, help="GPUs asked for at a time per GPU; default 1.3")
    add("--pods", type=int, help="so many, which come and go; default: enough, and they stay")
    add("--seed", type=int, default=1, help="default 1; the same seed gives the same answer")
    add("--save", metavar="FILE", help="write the pods there too, as JSON lines")
    add("--json", action="store_true", help="answer in JSON")
    return parser


def _simulate(arguments: argparse.Namespace) -> int:
    described = nodes.parse(arguments.nodes)
    gpus = sum(len(node.usable) for node in described)
    pods = _pods(arguments, gpus)
    mix = Mix(pods)
    # Anew for each, so that its dice do not depend on which others run.
    known = list(policies(mix, arguments.seed))
    wanted = arguments.policy or known
    for name in wanted:
        if name not in known:
            raise VcudaError(f"no policy '{name}'", "--policy", f"one of {', '.join(known)}")
    found = {}
    for name in dict.fromkeys(wanted):

        def say(come: int, name: str = name) -> None:
            print(f"{PROGRAM}: {name}: {come} of {len(pods)} pods", file=sys.stderr, flush=True)

        replay = Replay(described, policies(mix, arguments.seed)[name], mix)
        found[name] = report.figures(pods, described, replay.run(pods, say))
    asked = round(sum(pod.gpus for pod in pods), 2)
    if arguments.json:
        cluster = {"nodes": len(described), "gpus": gpus}
        tree = {"cluster": cluster, "trace": {"pods": len(pods), "gpus": asked}, "policies": found}
        print(json.dumps(tree, indent=2))
        return 0
    print(f"{len(pods)} pods ask for {asked:g} GPUs; there are {gpus} on {len(described)} nodes")
    print("\n".join(report.table(found)))
    return 0


def _pods(arguments: argparse.Namespace, gpus: int) -> list[TracePod]:
    """Raises VcudaError."""
    if arguments.trace:
        pods = trace.read(arguments.trace)
    else:
        if not 0 < arguments.load <= _MOST_LOAD:
            mend = f"write a number above 0, at most {_MOST_LOAD}"
            raise VcudaError("no such load", f"--load {arguments.load}", mend)
        asked = arguments.load * gpus
        if arguments.pods is None:
            pods = fgd_trace.filling(arguments.seed, asked)
        elif 0 < arguments.pods <= _MOST_PODS:
            pods = fgd_trace.coming_and_going(arguments.seed, asked, arguments.pods)
        else:
            raise VcudaError("no such trace", f"--pods {arguments.pods}", f"1 to {_MOST_PODS}")
    if arguments.save:
        try:
            with open(arguments.save, "w", encoding="utf-8") as file:
                file.writelines(trace.dump(pods))
        except OSError as error:
            what = f"cannot be written: {error.strerror}"
            raise VcudaError(what, arguments.save, "name another file") from error
    return pods
