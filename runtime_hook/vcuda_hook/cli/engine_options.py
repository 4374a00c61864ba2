"""The command line of `vcuda configure` and `vcuda cdi`."""

from __future__ import annotations

import argparse

from vcuda_oci.model import names

from ..engines.known import ENGINES, EVERY
from .live_options import add_verb, seconds


def configure_options(configure: argparse.ArgumentParser) -> None:
    add = configure.add_argument
    add(
        "engine",
        choices=(*ENGINES, EVERY),
        help="the engine to configure; all: with --undo, every engine that vcuda has configured",
    )
    add("--dry-run", action="store_true", help="show what would change, and change nothing")
    add("--undo", action="store_true", help="remove what vcuda wrote, and nothing else")
    add("--default", action="store_true", help="also make vcuda's runtime the engine's default")
    add(
        "--hooks",
        action="store_true",
        help="crio, podman: configure a hook in hooks.d, for every runtime, instead of a runtime",
    )
    add(
        "--always",
        action="store_true",
        help="with --hooks: call the hook for every container, so that variables can ask too",
    )
    add(
        "--config",
        dest="engine_config",
        metavar="PATH",
        help="the engine's configuration file; default: the one that the engine reads",
    )
    add(
        "--runtime-path",
        metavar="PATH",
        help="path of vcuda-container-runtime; default: the installed one",
    )


def cdi_options(cdi: argparse.ArgumentParser) -> None:
    verbs = cdi.add_subparsers(dest="cdi", metavar="VERB", required=True)
    generate = add_verb(
        verbs, "generate", "write a CDI spec", "cdi generate --slice train=core:30,memory:5GiB"
    )
    remove = add_verb(
        verbs, "remove", "remove named slices from the specs, and release them", "cdi remove train"
    )
    new = f"file of the spec; default {names.CDI_SPEC}; another --kind has its own beside it"
    former = "the spec to change; default: every spec that vcuda has written"
    for verb, output in ((generate, new), (remove, former)):
        verb.add_argument("--output", metavar="FILE", help=output)
        verb.add_argument("--json", action="store_true", help="answer in JSON")
    add = generate.add_argument
    add(
        "--slice",
        metavar="NAME=REQUEST",
        action="append",
        default=[],
        help="a named slice, such as train=core:30,memory:5GiB,gpu:0; may be repeated",
    )
    add(
        "--kind",
        metavar="VENDOR/CLASS",
        type=_kind,
        help=f"the spec's kind, before '=' in a device's name; default {names.CDI_KIND}",
    )
    add(
        "--watch",
        action="store_true",
        help="keep running, and write the spec again when GPUs, driver or slices change",
    )
    add(
        "--interval",
        metavar="SECONDS",
        type=seconds(0.01, 86400),
        default=5,
        help="time between checks of --watch; default 5",
    )
    remove.add_argument("name", metavar="NAME", nargs="+", help="name of a slice")
    remove.add_argument(
        "--force", action="store_true", help="remove a slice that a process uses, too"
    )


def _kind(text: str) -> str:
    from ..cdi import cdi_kind  # only where a kind is named

    if not cdi_kind.is_kind(text):
        hint = "write VENDOR/CLASS, such as nvidia.com/gpu"
        raise argparse.ArgumentTypeError(f"invalid kind '{text}'; {hint}")
    return text
