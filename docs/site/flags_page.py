"""Every program's options, from the code: docs/flags.md on standard output, by `make pages`.

They are read off the parsers that print --help; the software GPU, which is C, is asked.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator

from vcuda_hook.cli.main import build_parser
from vcuda_plugin.agent import main as agent
from vcuda_plugin.extender import main as extender
from vcuda_plugin.simulate import command as simulation

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

HEAD = """\
# Every program's options

Made of the code by `make pages`; do not edit. Each has `--help` beside. What the verbs of `vcuda`
do is told in [the command](cli.md), with their exit codes.

`vcuda-container-runtime` and `vcuda-container-hook` have no options of their own: the one takes
runc's and passes them on, the other a container's state on its standard input. Each has a manual
page.
"""


def main() -> None:
    print("\n".join(_page()))


def _page() -> Iterator[str]:
    yield HEAD
    for parser in (build_parser(), agent._parser(), extender._parser()):
        yield from _of(parser)
    words = [REPOSITORY + "/build/softgpu/softgpu", "--help"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    yield from ["## softgpu", "", "```text", told.rstrip(), "```"]


def _of(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## {parser.prog}\n\n{parser.description}\n"
    if len(parser._actions) > 1:
        yield "| option | |\n| --- | --- |"
    for action in parser._actions:
        if not isinstance(action, (argparse._SubParsersAction, argparse._HelpAction)):
            meaning = parser._get_formatter()._expand_help(action) if action.help else ""
            yield f"| {_name(action)} | {_cell(meaning)} |"
    yield ""
    for verb in _verbs(parser):
        # Its options are another program's.
        yield from _of(simulation._parser() if verb.prog == "vcuda simulate" else verb)


def _verbs(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    subparsers = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return [verb for action in subparsers for verb in action.choices.values()]


def _name(action: argparse.Action) -> str:
    """As --help has it: each spelling, and what it takes."""
    value = action.metavar or "|".join(action.choices or ()) or action.dest.upper()
    if not action.option_strings:
        return f"`{_cell(str(value))}`"
    takes = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{_cell(option + takes)}`" for option in action.option_strings)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


if __name__ == "__main__":
    main()
