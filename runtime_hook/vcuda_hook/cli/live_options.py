"""The command lines of the verbs that show and change live containers, and of policies."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ..show.choices import PS_FILTERS, PS_ORDERS, TOP_ORDERS

ID_HELP = "allocation id or its first characters, or the name of the container or its pod"

WHY_HELP = "as for inspect; also a container that holds no share, or a pod that waits"
_FILTER_HELP = f"only containers with this value; may be repeated; keys: {', '.join(PS_FILTERS)}"


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    example: str,
) -> argparse.ArgumentParser:
    """The verb's parser, which has no options yet."""
    made = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example: vcuda {example}",
        allow_abbrev=False,
    )
    made.set_defaults(parser=made)
    return made


def seconds(least: float, most: float) -> Callable[[str], float]:
    """The type of an option with a time in seconds."""

    def parsed(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1
        if not least <= found <= most:
            what = f"no such time '{text}'; write seconds, {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(what)
        return found

    return parsed


def limit_options(limit: argparse.ArgumentParser) -> None:
    add = limit.add_argument
    add("id", metavar="ID", help=ID_HELP)
    add("--core", metavar="PERCENT", help="new share of the GPU's time, 1 to 100")
    add("--memory", metavar="SIZE", help="new memory limit, such as 8GiB")
    policy_options(limit, live=True)
    add(
        "--gpu",
        metavar="UUID|INDEX",
        help="which GPU's share to change, if the container has several",
    )
    add("--force", action="store_true", help="allow a limit below the memory in use")
    add("--dry-run", action="store_true", help="show what would change, and change nothing")


def advise_options(advise: argparse.ArgumentParser) -> None:
    add = advise.add_argument
    _add_name(advise, "a workload, or one of its containers; default: list all workloads")
    add("--apply", action="store_true", help="change the shares of its running containers")
    add("--dry-run", action="store_true", help="with --apply: only show the changes")
    add("--max-core", metavar="PERCENT", help="with --apply: at most; default: what was asked for")
    add("--max-memory", metavar="SIZE", help="with --apply: at most; default: what was asked for")


def ps_options(ps: argparse.ArgumentParser) -> None:
    add = ps.add_argument
    add("-q", "--quiet", action="store_true", help="only the ids of the allocations")
    add(
        "--format",
        metavar="TEMPLATE",
        default="",
        help="such as '{{.Name}} {{.Used}}', 'table {{.ID}}\\t{{.Image}}', or json (a line each)",
    )
    add("--filter", metavar="KEY=VALUE", action="append", default=[], help=_FILTER_HELP)
    add("--sort", choices=PS_ORDERS, default="", help="order of the containers")
    add("--processes", action="store_true", help="the containers' processes, by their host pids")
    add("--watch", action="store_true", help="show the table again every two seconds")
    add("--wide", action="store_true", help="more columns, however wide the table gets")


def top_options(top: argparse.ArgumentParser) -> None:
    add = top.add_argument
    add("--once", action="store_true", help="print the state once, as text")
    add(
        "--interval",
        metavar="SECONDS",
        type=seconds(0.1, 3600),
        default=1.0,
        help="time between samples, 0.1 to 3600; default 1",
    )
    add(
        "--sort",
        choices=TOP_ORDERS,
        default=TOP_ORDERS[0],
        help="order of the tenants; default %(default)s",
    )


def suspend_options(
    verb: argparse.ArgumentParser, timeout: str, gpu: str = "", needs_gpu: bool = False
) -> None:
    """timeout: what --timeout is. gpu: help of --gpu; "": there is none."""
    if gpu:
        verb.add_argument("--gpu", metavar="GPU", default="", required=needs_gpu, help=gpu)
    verb.add_argument("id", metavar="ID", nargs="+", help=ID_HELP)
    _add_timeout(verb, timeout)


def drain_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("gpu", metavar="GPU", help="UUID or index")
    plan_options(verb)


def undrain_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("gpu", metavar="GPU", help="UUID or index")
    _add_timeout(verb, "how long each container may wait for room")


def layout_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("file", metavar="FILE", help="of version v1, YAML or JSON")
    verb.add_argument("layout", metavar="NAME", help="a name of its mig-configs")
    verb.add_argument("--dry-run", action="store_true", help="show the plan, and change nothing")


def rebalance_options(verb: argparse.ArgumentParser) -> None:
    add = verb.add_argument
    add("--core", metavar="PERCENT", required=True, help="percent of one GPU's time, as for run")
    add("--memory", metavar="SIZE", help="such as 4GiB; default: the same part as --core")
    gpu = "make room on one of these GPUs only; may be repeated"
    add("--gpu", metavar="UUID|INDEX", action="append", default=[], help=gpu)
    add("--placement", metavar="NAME", help="as for run; default: the setting placement")
    plan_options(verb)


def plan_options(verb: argparse.ArgumentParser) -> None:
    add = verb.add_argument
    add("--dry-run", action="store_true", help="show the plan, and change nothing")
    add("--yes", action="store_true", help="do it without a question")
    _add_timeout(verb, "how long the driver may take to copy each container off")


def _add_timeout(verb: argparse.ArgumentParser, what: str) -> None:
    verb.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds(0, 86400),
        default=300,
        help=f"{what}, in seconds; default %(default)s",
    )


def _add_name(verb: argparse.ArgumentParser, what: str) -> None:
    verb.add_argument("name", metavar="NAME", nargs="?", default="", help=what)


def events_options(events: argparse.ArgumentParser) -> None:
    add = events.add_argument
    _add_name(events, "only events of this allocation id, container or pod")
    add("--follow", action="store_true", help="keep running, and print new events")
    add(
        "--since",
        metavar="AGE",
        type=_age,
        help="only events younger than this, such as 90s, 10m, 3h, 2d",
    )


def _age(text: str) -> float:
    """Parse an age; return seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if not text[:-1].isdigit() or text[-1:] not in units:
        raise argparse.ArgumentTypeError(f"no such age '{text}'; write it like 90s, 10m, 3h or 2d")
    return float(text[:-1]) * units[text[-1]]


def policy_options(parser: argparse.ArgumentParser, live: bool = False) -> None:
    """live: the container exists, and options that are not given keep its values."""
    add, kept = parser.add_argument, "default: unchanged, or " if live else "default "
    policies = "fixed, elastic, weighted or best-effort; default: unchanged"
    if not live:
        policies = "fixed, elastic, weighted, best-effort or rotate; default fixed"
    add(
        "--policy",
        metavar="NAME",
        help=policies,
    )
    add(
        "--core-limit",
        metavar="PERCENT",
        help=f"elastic: upper limit of GPU time; {kept}100",
    )
    add("--weight", metavar="N", help=f"weighted: weight, 1 to 10000; {kept}100")
    add(
        "--priority",
        metavar="N",
        help=f"elastic, weighted: 0 to 1000, higher is served first; {kept}0",
    )
    add(
        "--latency",
        metavar="NAME",
        help="normal, or low: short requests cut into the turns of other containers; "
        f"default{': unchanged' if live else ' normal'}",
    )
    if not live:
        add(
            "--idle-suspend",
            metavar="TIME",
            help="time without GPU work after which the container is suspended, such as 10m, "
            "or never; default: the setting idle-suspend",
        )
        add(
            "--isolation",
            metavar="NAME",
            help="what holds the share: turns, mig (a GPU instance of its own), mps, or auto; "
            "default: the setting isolation",
        )
