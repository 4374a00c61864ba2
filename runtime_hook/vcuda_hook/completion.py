"""``vcuda completion``: verbs and options for the shells, read off the parser itself."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")

_BASH = """\
_vcuda_words() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} verb= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      --config) ((i++)) ;;
      -*) ;;
      *) verb=${{COMP_WORDS[i]}}; break ;;
    esac
  done
  case $verb in
{cases}
    *) COMPREPLY=($(compgen -W "{verbs} {options}" -- "$word")) ;;
  esac
}}
complete -o default -F _vcuda_words vcuda
"""
# zsh reads bash's by its own compatibility layer. As a file of fpath it is the body of a function
# _vcuda that the first Tab calls, and then it has to answer too.
_ZSH = """\
#compdef vcuda
autoload -U +X bashcompinit && bashcompinit
{bash}[ "${{funcstack[1]-}}" != _vcuda ] || _bash_complete -o default -F _vcuda_words
"""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """A script to be sourced by `shell`."""
    verbs = _verbs(parser)
    if shell == "fish":
        lines = [f"complete -c vcuda -l {name[2:]}" for name in _own(parser)]
        for verb, verb_parser in verbs.items():
            lines.append(f"complete -c vcuda -n __fish_use_subcommand -f -a {verb}")
            lines += [
                f"complete -c vcuda -n '__fish_seen_subcommand_from {verb}' -l {name[2:]}"
                for name in _options(verb_parser)
            ]
            words = [word for word in _words(verb_parser) if word[:2] != "--"]
            if words:
                line = f"complete -c vcuda -n '__fish_seen_subcommand_from {verb}' -f -a"
                lines.append(f"{line} '{' '.join(words)}'")
        return "\n".join(lines) + "\n"
    cases = [
        f'    {verb}) COMPREPLY=($(compgen -W "{" ".join(_words(verb_parser))}" -- "$word")) ;;'
        for verb, verb_parser in verbs.items()
    ]
    text = _BASH.format(
        cases="\n".join(cases), verbs=" ".join(verbs), options=" ".join(_own(parser))
    )
    return _ZSH.format(bash=text) if shell == "zsh" else text


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """What can follow a verb: names to choose from, and options."""
    names = [
        str(name)
        for action in parser._actions
        if not action.option_strings
        for name in action.choices or ()
    ]
    return [*names, *_options(parser)]


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """Its options, those of the verbs below it included."""
    below = [name for verb in _verbs(parser).values() for name in _own(verb)]
    return list(dict.fromkeys([*_own(parser), *below]))


def _own(parser: argparse.ArgumentParser) -> list[str]:
    return [
        name for action in parser._actions for name in action.option_strings if name[:2] == "--"
    ]
