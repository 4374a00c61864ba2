"""The command line of `vcuda configure` and `vcuda cdi`."""

from __future__ import annotations

import argparse

from vcuda_oci.model import names

from ..engines.wanted import ENGINES, EVERY


def configure_options(configure: argparse.ArgumentParser) -> None:
    add = configure.add_argument
    add("engine", choices=(*ENGINES, EVERY), help="all: with --undo, whatever vcuda has edited")
    add("--dry-run", action="store_true", help="only show what would change")
    add("--undo", action="store_true", help="take back what vcuda wrote, and only that")
    add("--default", action="store_true", help="make it the engine's default runtime too")
    add(
        "--hooks",
        action="store_true",
        help="crio, podman: no runtime, but a file in hooks.d, for containers of any runtime",
    )
    add(
        "--always",
        action="store_true",
        help="with --hooks: for every container, so that variables ask too, not annotations alone",
    )
    add(
        "--config",
        dest="engine_config",
        metavar="PATH",
        help="the engine's file; default: where the engine looks",
    )
    add(
        "--runtime-path", metavar="PATH", help="vcuda-container-runtime; default: the installed one"
    )


def cdi_options(cdi: argparse.ArgumentParser) -> None:
    verbs = cdi.add_subparsers(dest="cdi", metavar="VERB", required=True)
    made = []
    for name, summary, example, output in (
        (
            *("generate", "write the spec", "generate --slice train=core:30,memory:5GiB"),
            f"the spec; default {names.CDI_SPEC}, and a file beside it for another --kind",
        ),
        (
            *("remove", "take named slices out of the specs and release them", "remove train"),
            "the one spec to change; default: all that vcuda has written",
        ),
    ):
        verb = verbs.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"example: vcuda cdi {example}",
            allow_abbrev=False,
        )
        verb.set_defaults(parser=verb)
        verb.add_argument(
            "--output",
            metavar="FILE",
            help=output,
        )
        verb.add_argument("--json", action="store_true", help="answer in JSON")
        made.append(verb)
    generate, remove = made
    add = generate.add_argument
    add(
        "--slice",
        metavar="NAME=REQUEST",
        action="append",
        default=[],
        help="a device of this name, such as train=core:30,memory:5GiB,gpu:0; may be repeated",
    )
    add(
        "--kind",
        metavar="VENDOR/CLASS",
        type=_kind,
        help=f"what stands before the devices' names; default {names.CDI_KIND}",
    )
    add("--watch", action="store_true", help="go on, and write it anew when something changes")
    add(
        "--interval",
        metavar="SECONDS",
        type=_interval,
        default=5,
        help="how often --watch looks; default 5",
    )
    remove.add_argument("name", metavar="NAME", nargs="+", help="a slice's name")
    remove.add_argument("--force", action="store_true", help="even if a process uses it")


def _interval(text: str) -> float:
    seconds = float(text)
    if not 0.01 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"no such pause '{text}'; write seconds, 0.01 to 86400")
    return seconds


def _kind(text: str) -> str:
    from ..cdi import cdi_kind  # only where a kind is named

    if not cdi_kind.is_kind(text):
        hint = "write VENDOR/CLASS, such as nvidia.com/gpu"
        raise argparse.ArgumentTypeError(f"invalid kind '{text}'; {hint}")
    return text
