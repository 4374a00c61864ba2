"""Run ``vcuda simulate``, from its arguments to the printed comparison."""

from __future__ import annotations

import argparse
import json
import sys

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files

from ..extender.quota import quota_limits
from ..extender.quota.quota_limits import Limit
from ..kube import json_bytes
from . import fgd_trace, nodes, report, trace
from .fragmentation import Mix
from .policies import policies
from .replay import Replay
from .trace import Trace

_MOST_LOAD, _MOST_PODS = 100, 1_000_000


def simulate(arguments: argparse.Namespace) -> int:
    described = nodes.parse(arguments.nodes)
    gpus = sum(len(node.usable) for node in described)
    limits = quotas(arguments.quota) if arguments.quota else {}
    pods, without_gpu = _trace(arguments, gpus)
    mix = Mix(pods)
    # Only for the names: each replay below makes its policy again, so that its random numbers do
    # not depend on which others run.
    known = list(policies(mix, arguments.seed))
    wanted = arguments.policy or known
    for name in wanted:
        if name not in known:
            hint = f"choose one of {', '.join(known)}"
            raise VcudaError(f"no policy '{name}'", "--policy", hint)
    found = {}
    for name in dict.fromkeys(wanted):

        def say(come: int, waiting: int, name: str = name) -> None:
            line = f"{name}: {come} of {len(pods)} pods came, {waiting} wait"
            print(f"vcuda simulate: {line}", file=sys.stderr, flush=True)

        for rebalances in (False, True) if arguments.rebalance else (False,):
            policy = policies(mix, arguments.seed)[name]
            replay = Replay(described, policy, mix, limits, say, rebalances=rebalances)
            shown = f"{name}, moves" if rebalances else name
            found[shown] = report.figures(pods, described, replay.run(pods), limits)
    asked = round(sum(pod.gpus for pod in pods), 2)
    if arguments.json:
        cluster = {"nodes": len(described), "gpus": gpus}
        counts = {"pods": len(pods), "gpus": asked, "without_gpu": without_gpu}
        tree = {"cluster": cluster, "trace": counts, "policies": found}
        print(json.dumps(tree, indent=2))
        return 0
    print(f"{len(pods)} pods ask for {asked:g} GPUs; there are {gpus} on {len(described)} nodes")
    if without_gpu:
        print(f"{without_gpu} more pods ask for no GPU and are left out")
    lines = [*report.table(found), *report.quota_lines(found), *report.move_lines(found)]
    print("\n".join(lines))
    return 0


def quotas(path: str) -> dict[str, Limit]:
    """Read quotas by namespace, as the extender does. Raises VcudaError."""
    try:
        text = files.read(path, follow=True)
        tree = json_bytes.loads(text)
        if tree.get("kind") == "ConfigMap":
            return quota_limits.parse(tree)
        return quota_limits.limits(text.decode())
    except OSError as error:
        raise VcudaError(f"cannot be read: {error.strerror}", path, "name a file") from error
    except (ValueError, AttributeError) as error:
        hint = f"write what the key {quota_limits.KEY} of the ConfigMap holds, or all of it as JSON"
        raise VcudaError(f"no quotas: {error}"[:300], path, hint) from error


def _trace(arguments: argparse.Namespace, gpus: int) -> Trace:
    """Read or generate the pods, and save them if requested. Raises VcudaError."""
    without_gpu = 0
    if arguments.trace:
        pods, without_gpu = trace.read(arguments.trace)
    else:
        if not 0 < arguments.load <= _MOST_LOAD:
            hint = f"write a number above 0, at most {_MOST_LOAD}"
            raise VcudaError("no such load", f"--load {arguments.load}", hint)
        asked = arguments.load * gpus
        if arguments.pods is None:
            pods = fgd_trace.filling(arguments.seed, asked, arguments.generate)
        elif 0 < arguments.pods <= _MOST_PODS:
            mix, number = arguments.generate, arguments.pods
            pods = fgd_trace.coming_and_going(arguments.seed, asked, number, mix)
        else:
            raise VcudaError("no such trace", f"--pods {arguments.pods}", f"say 1 to {_MOST_PODS}")
    if arguments.save:
        try:
            with open(arguments.save, "w", encoding="utf-8") as file:
                file.writelines(trace.dump(pods))
        except OSError as error:
            what = f"cannot be written: {error.strerror}"
            raise VcudaError(what, arguments.save, "name another file") from error
    return Trace(pods, without_gpu)
