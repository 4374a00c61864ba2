"""The ``vcuda`` command: verbs, options, exit codes.

0: done. 1: refused or failed, with one line on stderr. 2: invalid command line. `run` returns the
container's exit code, or 126 or 127 if its program cannot be started; `doctor` returns 1 for
warnings and 2 for errors.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import settings_file

from . import completion, engine_options, live_options, output

# Module and function of each verb; the others are in the module of their name beside this one.
_VERBS = {
    "run": "run.command:run",
    "demo": "demo.demo:demo",
    "resume": "cli.suspend:resume",
    "move": "cli.suspend:move",
    "undrain": "cli.drain:undrain",
    "rebalance": "cli.drain:rebalance",
    "mig-layout": "cli.mig_layout:mig_layout",
    "top": "show.top:top",
    "events": "show.show_events:show_events",
    "why": "why.why:why",
    "configure": "engines.configure:configure",
    "cdi": "cdi.command:run",
    "ps": "show.ps:ps",
    "gpus": "show.show:gpus",
    "inspect": "show.show:inspect",
}
# Verbs that have containers or a socket to clean up when their reader closes the pipe.
_OUTLIVE_THEIR_READER = ("run", "demo", "serve")
# Verbs that have no answer, or that leave it to verbs of their own.
_WITHOUT_JSON = ("run", "cdi", "serve", "demo", "simulate", "completion", "help", "version")


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return output.flushed(_main(argv))
    except SystemExit as end:
        raise SystemExit(output.flushed(end.code if isinstance(end.code, int) else 0)) from None
    except VcudaError as error:
        sys.stderr.write(f"vcuda: {error}\n")
        return output.flushed(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("vcuda: interrupted\n")
        return 128 + signal.SIGINT
    except OSError as error:
        if not output.is_of_output(error):
            raise
        return output.failed(error)


def _main(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["simulate"]:
        from .simulate import simulate  # late, as each verb's module; it has options of its own

        simulate(words[1:])
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        own = words.index(unknown[0]) < words.index(arguments.verb)
        of = parser if own else arguments.parser
        of.error(f"unrecognized arguments: {' '.join(unknown)}")
    if arguments.verb == "simulate":
        parser.error("simulate reads no settings; leave --config out")
    if arguments.verb == "completion":
        sys.stdout.write(completion.script(parser, arguments.shell))
        return 0
    if arguments.verb == "version":
        print(f"vcuda {names.VERSION}")
        return 0
    if arguments.verb == "help":
        _help(parser, arguments.of)
        return 0
    if arguments.verb == "doctor":
        return _doctor(arguments)
    if arguments.verb == "run" and arguments.command[:1] == ["--"]:
        del arguments.command[0]  # argparse passes it on with the words after it
    settings = settings_file.load_named(os.path.abspath(arguments.config))
    try:
        return _verb(arguments.verb)(arguments, settings)
    except VcudaError as error:
        _name_containers(error, settings)
        raise


def _name_containers(error: VcudaError, settings: settings_file.Config) -> None:
    from vcuda_oci.ledger.ledger import Ledger  # late, as each verb's module

    from ..names import container_names  # late for the same reason

    with contextlib.suppress(VcudaError):  # another user than root reads no records
        container_names.name_in(error, Ledger(settings.state_dir).read()[0])


def _doctor(arguments: argparse.Namespace) -> int:
    """`vcuda doctor` reports invalid settings itself."""
    from ..doctor import bundle, report  # late, as each verb's module

    _end_quietly_with_the_reader()
    config = os.path.abspath(arguments.config)
    if arguments.dry_run and arguments.upgrade:
        arguments.parser.error("--dry-run goes with --bundle only")
    if arguments.bundle or arguments.dry_run:
        return bundle.bundle(arguments, config)
    return report.doctor(arguments, config)


def _help(parser: argparse.ArgumentParser, verb: str | None) -> None:
    verbs = completion.verbs(parser)
    if verb is not None and verb not in verbs:
        parser.error(f"no such verb '{verb}'; 'vcuda help' lists them")
    (verbs[verb] if verb else parser).print_help()


def _verb(name: str) -> Callable[[argparse.Namespace, settings_file.Config], int]:
    """The verb's function; imports only the verb's module."""
    module, _, function = _VERBS.get(name, f"cli.{name}:{name}").partition(":")
    if name not in _OUTLIVE_THEIR_READER:
        _end_quietly_with_the_reader()
    found: Callable[[argparse.Namespace, settings_file.Config], int]
    found = getattr(importlib.import_module(f"vcuda_hook.{module}"), function)
    return found


def _end_quietly_with_the_reader() -> None:
    """End without a message when the reader closes the pipe, as `head` does."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vcuda",
        description="Shares NVIDIA GPUs between containers.",
        epilog="example: vcuda run --core 30 --memory 4GiB -- nvidia-smi",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"vcuda {names.VERSION}")
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=names.DEFAULT_CONFIG,
        help="settings; default %(default)s",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, summary: str, example: str) -> argparse.ArgumentParser:
        made = live_options.add_verb(verbs, name, summary, example)
        if name not in _WITHOUT_JSON:
            made.add_argument("--json", action="store_true", help="answer in JSON")
        return made

    _run_options(
        verb(
            "run",
            "run a container with a share of a GPU, and wait until it ends",
            "run --core 30 --memory 4GiB -- nvidia-smi",
        )
    )
    live_options.ps_options(
        verb("ps", "list the containers with shares, and their use", "ps --filter status=running")
    )
    live_options.top_options(
        verb("top", "show GPUs and tenants as bars, live", "top --sort compute")
    )
    inspect = verb("inspect", "show one container's share in full", "inspect run-3f2a")
    inspect.add_argument("id", metavar="ID", help=live_options.ID_HELP)
    why = verb("why", "say why a container waits, was refused or is slow", "why run-3f2a")
    why.add_argument("id", metavar="ID", help=live_options.WHY_HELP)
    gpus = verb("gpus", "list the GPUs, and what is free on each", "gpus --json")
    gpus.add_argument("--wide", action="store_true", help="full UUIDs, and more columns")
    gpus.add_argument(
        "--measure-context",
        action="store_true",
        help="create a context on each GPU and report the memory that it takes",
    )
    live_options.limit_options(
        verb("limit", "change a running container's share", "limit run-3f2a --memory 8GiB")
    )
    live_options.advise_options(
        verb("advise", "say how much of their GPUs workloads need", "advise ml/train")
    )
    live_options.suspend_options(
        verb("suspend", "take containers off their GPUs; they sleep until resumed", "suspend nb"),
        "how long the driver may take",
    )
    live_options.suspend_options(
        verb("resume", "bring suspended containers back to their GPUs", "resume nb --timeout 60"),
        "how long to wait for room (0: not at all)",
        "the GPU to come back to, by UUID or index; default: the one that each was on",
    )
    live_options.suspend_options(
        verb("move", "move containers to another GPU while they run", "move nb --gpu 1"),
        "how long the driver may take to copy off",
        "the GPU to go to, by UUID or index",
        needs_gpu=True,
    )
    live_options.drain_options(
        verb("drain", "move or suspend what runs on a GPU, and keep it empty", "drain 0 --dry-run")
    )
    live_options.undrain_options(
        verb("undrain", "use a drained GPU again; resume what the drain suspended", "undrain 0")
    )
    live_options.rebalance_options(
        verb(
            "rebalance",
            "move containers so that a request fits",
            "rebalance --core 50 --memory 8GiB",
        )
    )
    live_options.layout_options(
        verb(
            "mig-layout",
            "create GPU instances by a layout of nvidia-mig-parted's file",
            "mig-layout config.yaml all-1g.10gb --dry-run",
        )
    )
    live_options.events_options(
        verb("events", "show events of containers and GPUs", "events --since 10m --follow")
    )
    release = verb("release", "release a container's share", "release --all-dead")
    release.add_argument("id", metavar="ID", nargs="*", help=live_options.ID_HELP)
    release.add_argument(
        "--all-dead", action="store_true", help="release the shares of all ended containers"
    )
    release.add_argument(
        "--force", action="store_true", help="release the share of a running container, too"
    )
    engine_options.configure_options(
        verb(
            "configure",
            "configure a container engine to use vcuda, or undo that",
            "configure docker --dry-run",
        )
    )
    engine_options.cdi_options(
        verb(
            "cdi",
            "write CDI specs of this host's GPUs and of named slices",
            "cdi generate --slice train=core:30,memory:5GiB",
        )
    )
    verb("serve", "open the claim socket, so that containers start faster", "serve")
    doctor = verb(
        "doctor",
        "find faults of this host that affect GPU sharing, each with a hint",
        "doctor --json",
    )
    instead = doctor.add_mutually_exclusive_group()
    instead.add_argument(
        "--bundle",
        metavar="FILE",
        default="",
        help="write an archive for a bug report to a new FILE; known forms of secrets are removed",
    )
    doctor.add_argument("--dry-run", action="store_true", help="only list what --bundle writes")
    instead.add_argument(
        "--upgrade",
        action="store_true",
        help="from a new package's unpacked tree: what its version changes on this host",
    )
    _demo_options(
        verb("demo", "run two containers on one GPU, and measure their shares", "demo --seconds 8")
    )
    verb(
        "simulate",
        "replay a trace of pods through the scheduler extender; has its own --help",
        "simulate --generate fgd --nodes 100x8:H100:80GiB",
    )
    complete = verb(
        "completion",
        "print a shell's completion script",
        'completion bash, as in: eval "$(vcuda completion bash)"',
    )
    complete.add_argument("shell", choices=completion.SHELLS)
    help = verb("help", "show a verb's options, or list the verbs", "help run")
    help.add_argument("of", metavar="VERB", nargs="?", help="default: list all verbs")
    verb("version", "print the version", "version")
    return parser


def _run_options(run: argparse.ArgumentParser) -> None:
    add = run.add_argument
    run.usage = "vcuda run --core PERCENT [options] [--] COMMAND..."
    add(
        "--core",
        metavar="PERCENT",
        help="percent of one GPU's time; 150 is one GPU and half of another",
    )
    add(
        "--memory",
        metavar="SIZE",
        help="such as 4GiB; default: the same part of the GPU's memory as --core of its time",
    )
    add(
        "--gpu",
        metavar="UUID|INDEX",
        action="append",
        default=[],
        help="choose among these GPUs only; may be repeated",
    )
    live_options.policy_options(run)
    add(
        "--placement",
        metavar="NAME",
        help="binpack, spread or topology; default: the setting placement",
    )
    add(
        "--env",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="environment variable; may be repeated",
    )
    add(
        "--volume",
        metavar="SRC:DST[:ro]",
        action="append",
        default=[],
        help="a host folder or file in the container; may be repeated",
    )
    add(
        "--workdir",
        metavar="DIR",
        help="working directory of COMMAND; default: the current one, if the container has it",
    )
    add("--name", metavar="ID", help="the container's id; default: run-XXXXXXXX")
    add(
        "--cgroup-parent",
        metavar="PATH",
        default="",
        help="a cgroup, such as a Slurm job's or a service's; its limits hold for the container",
    )
    add("--runtime", metavar="NAME", help="runc, crun or a path; default: the setting runtime")
    root = run.add_mutually_exclusive_group()
    root.add_argument(
        "--rootfs",
        metavar="DIR",
        help="root file system of the container, left unchanged; default: the host's",
    )
    root.add_argument("--bundle", metavar="DIR", help="OCI bundle to run, left unchanged")
    add("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="program and arguments")


def _demo_options(demo: argparse.ArgumentParser) -> None:
    add = demo.add_argument
    add("--runtime", metavar="NAME", help="runc, crun or a path; default: the setting runtime")
    add("--seconds", type=float, default=8, help="how long to measure the shares; default 8")
    add("--json-out", metavar="FILE", help="also write the result to FILE")
    add(
        "--softgpu-dir",
        metavar="DIR",
        help="folder of the software GPU and the workload: /usr/lib/vcuda/softgpu or build/softgpu",
    )
