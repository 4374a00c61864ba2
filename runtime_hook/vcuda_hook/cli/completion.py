"""``vcuda completion``: shell completion of verbs and options, from a program's parser."""

from __future__ import annotations

import argparse

from vcuda_oci.model import policies
from vcuda_oci.system import settings_file

SHELLS = ("bash", "zsh", "fish")
# Values of options that argparse does not check; the request's parser does.
VALUES = {
    "--policy": tuple(policies.WORDS),
    "--placement": settings_file.PLACEMENTS,
    "--runtime": ("runc", "crun"),
}

_BASH = """\
_{name}_words() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} verb= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      --config) ((i++)) ;;
      -*) ;;
      *) verb=${{COMP_WORDS[i]}}; break ;;
    esac
  done
  case $verb:${{COMP_WORDS[COMP_CWORD - 1]}} in
{values}  esac
  case $verb in
{cases}    *) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;
  esac
}}
complete -o default -F _{name}_words {program}
"""
# zsh reads bash's completion through bashcompinit. A file in fpath is the body of the function that
# the first Tab calls, so it must also answer that call.
_ZSH = """\
#compdef {program}
autoload -U +X bashcompinit && bashcompinit
{bash}[ "${{funcstack[1]-}}" != _{program} ] || _bash_complete -o default -F _{name}_words
"""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """A completion script for `shell`."""
    program, parsers = parser.prog, verbs(parser)
    name = program.replace("-", "_")
    if shell == "fish":
        lines = [f"complete -c {program} -l {option[2:]}" for option in _own(parser)]
        for verb, verb_parser in parsers.items():
            lines.append(f"complete -c {program} -n __fish_use_subcommand -f -a {verb}")
            begin = f"complete -c {program} -n '__fish_seen_subcommand_from {verb}'"
            lines += [f"{begin} -l {option[2:]}" for option in _options(verb_parser)]
            words = [word for word in _words(verb_parser) if word[:2] != "--"]
            if words:
                lines.append(f"{begin} -f -a '{' '.join(words)}'")
        return "\n".join(lines) + "\n"
    cases, values = [], []
    for verb, verb_parser in parsers.items():
        follows = " ".join(_words(verb_parser))
        operands = [each for each in verb_parser._actions if not each.option_strings]
        if any(each.metavar in ("ID", "NAME") for each in operands):
            follows += f" $({program} ps 2>/dev/null | sed '1d; s/ .*//')"
        cases.append(f'    {verb}) COMPREPLY=($(compgen -W "{follows}" -- "$word")) ;;\n')
        values += [f"    {verb}:{each}" for each in _values(verb_parser)]
    first = " ".join([*parsers, *_own(parser)])
    text = _BASH.format(
        name=name, program=program, values="".join(values), cases="".join(cases), words=first
    )
    return _ZSH.format(name=name, program=program, bash=text) if shell == "zsh" else text


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the verbs, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """The words that can follow a verb: choices and options."""
    names = [
        str(name)
        for action in parser._actions
        if not action.option_strings
        for name in action.choices or ()
    ]
    return [*names, *_options(parser)]


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """The parser's options, with those of its sub-parsers."""
    below = [name for verb in verbs(parser).values() for name in _own(verb)]
    return list(dict.fromkeys([*_own(parser), *below]))


def _values(parser: argparse.ArgumentParser) -> list[str]:
    """A bash case for the values of each option with a value; bash offers files for free ones."""
    found = []
    for of in (parser, *verbs(parser).values()):
        for action in of._actions:
            if not action.option_strings or action.nargs == 0:
                continue
            choices = action.choices or VALUES.get(action.option_strings[0], ())
            words = " ".join(map(str, choices))
            answer = f'($(compgen -W "{words}" -- "$word"))' if choices else "()"
            found.append(f"{action.option_strings[0]}) COMPREPLY={answer}; return ;;\n")
    return list(dict.fromkeys(found))


def _own(parser: argparse.ArgumentParser) -> list[str]:
    return [
        name for action in parser._actions for name in action.option_strings if name[:2] == "--"
    ]
