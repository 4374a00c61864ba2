"""Every line that a program ends or goes on with when something is wrong, read off its Python.

They are calls of VcudaError, of Refused, which placement answers with, of a logger's warning, and
whatever is written on standard error or refused of a command line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import error_texts
from error_line import UNKNOWN, Line, is_passed_on, split
from error_texts import Known, texts

from vcuda_oci.placement import Refused

_TOLD = ("VcudaError", "Refused")
# Calls that write their last argument but for what is named, and those that only end.
_WRITES = ("sys.stderr.write", "os.write", "sys.exit", "_to_stderr", "SystemExit")
_OF_A_COMMAND_LINE = ("parser.error", "argparse.ArgumentTypeError")
_WARNINGS = ("_log.warning", "_log.error", "retry.after")
_STATUS = ("main()", "command()")


def of(path: str) -> list[Line]:
    """A module's lines, each once, in its order."""
    tree = error_texts.parsed(path)
    functions = list(error_texts.outermost(tree))
    constants = {**error_texts.returned(functions), **error_texts.constants(tree)}
    inside = [
        (call, {**constants, **error_texts.before(call, f)})
        for f in functions
        for call in _calls(f)
    ]
    known_calls = {id(call) for call, _ in inside}
    outside = [(call, constants) for call in _calls(tree) if id(call) not in known_calls]
    found = [line for call, known in inside + outside for line in _said(call, known)]
    return list(dict.fromkeys(found + list(_mends(constants))))


def _calls(node: ast.AST) -> list[ast.Call]:
    """Those that tell something."""
    calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    told = (*_TOLD, *_WARNINGS, *_OF_A_COMMAND_LINE)
    return sorted(
        (call for call in calls if ast.unparse(call.func) in told or _written(call)),
        key=lambda call: call.lineno,
    )


def _written(call: ast.Call) -> ast.expr | None:
    """What it writes on standard error."""
    name = ast.unparse(call.func)
    to = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}.get("file")
    if name == "print" and to == "sys.stderr":
        return call.args[0]
    if name not in _WRITES or not call.args or (name == "os.write" and not _is(call.args[0], 2)):
        return None
    said = call.args[-1]
    is_status = ast.unparse(said) == "None" or (
        isinstance(said, ast.Constant) and not isinstance(said.value, str)
    )
    return None if is_status or re.sub(r"\(.*", "()", ast.unparse(said)) in _STATUS else said


def _is(node: ast.expr, value: int) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def _said(call: ast.Call, known: Known) -> Iterator[Line]:
    name = ast.unparse(call.func)
    if name == "VcudaError":
        what, where, mend = (texts(argument, known) for argument in call.args)
        # Said again, with where it was.
        if not all(text.startswith("<") for text in what + mend):
            yield from (Line(" / ".join(where), text, " / ".join(mend)) for text in what)
    elif name == "Refused":
        whats, *more = (texts(argument, known) for argument in call.args)
        mend = more[0] if more else [Refused("").mend]
        yield from (Line("placement", text, " / ".join(mend)) for text in filter(None, whats))
    elif name in _WARNINGS:
        form = texts(call.args[0], known)[0]
        if form != "%s" and not is_passed_on(form):
            yield Line("", re.sub(r"%\w", UNKNOWN, form), "")
    elif name in _OF_A_COMMAND_LINE:
        yield from (split(f"vcuda: error: {text}") for text in texts(call.args[0], known))
    else:
        said = _written(call)
        mends: dict[tuple[str, str], list[str]] = {}
        for text in (form.strip() for form in (texts(said, known) if said else [])):
            # How a program is called is no error's line.
            if not text.startswith("usage: ") and not is_passed_on(text):
                line = split(text)
                mends.setdefault(line[:2], []).append(line.mend)
        yield from (Line(*front, " / ".join(mend)) for front, mend in mends.items())


def _mends(constants: Known) -> Iterator[Line]:
    """Of a table of refusals, each with its way out."""
    for table in constants.get("_MENDS", []):
        if isinstance(table, ast.Dict):
            for reason, mend in zip(table.keys, table.values, strict=True):
                if reason is not None:
                    what = f"{UNKNOWN} {texts(reason, {})[0]} {UNKNOWN}"
                    yield Line("placement", what, texts(mend, {})[0])
