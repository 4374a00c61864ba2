"""Every line that a program ends or goes on with when something is wrong, read off its Python.

They are calls of VcudaError, of Refused, which placement answers with, and of a logger's warning.
What is known at run time only stands as <its name>, or as … where it has none.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from vcuda_oci.placement import Refused

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNKNOWN = "…"

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_TOLD = ("VcudaError", "Refused")
# What a name, or a function of this module, may stand for.
_Known = dict[str, list[ast.expr]]


class Line(NamedTuple):
    """mend: empty in a warning, after which the program goes on by itself."""

    where: str
    what: str
    mend: str


def of(path: str) -> list[Line]:
    """A module's lines, each once, in its order."""
    tree = _parsed(path)
    functions = list(_outermost(tree))
    constants = {**_returned(functions), **_constants(tree)}
    calls = [(call, {**constants, **_before(call, f)}) for f in functions for call in _calls(f)]
    found = [line for call, known in calls for line in _said(call, known)]
    return list(dict.fromkeys(found + list(_mends(constants))))


def _parsed(path: str) -> ast.Module:
    with open(f"{REPOSITORY}/{path}") as file:
        return ast.parse(file.read())


def _said(call: ast.Call, known: _Known) -> Iterator[Line]:
    texts = [_texts(argument, known) for argument in call.args]
    if _name(call) == "VcudaError":
        what, where, mend = texts
        # Said again, with where it was.
        if not all(text.startswith("<") for text in what + mend):
            yield from (Line(" / ".join(where), text, " / ".join(mend)) for text in what)
    elif _name(call) == "Refused":
        mend = texts[1] if len(texts) > 1 else [Refused("").mend]
        yield from (Line("placement", text, " / ".join(mend)) for text in filter(None, texts[0]))
    elif texts[0] != ["%s"]:
        yield Line("", re.sub(r"%\w", UNKNOWN, texts[0][0]), "")


def _mends(constants: _Known) -> Iterator[Line]:
    """Of a table of refusals, each with its way out."""
    for table in constants.get("_MENDS", []):
        if isinstance(table, ast.Dict):
            for reason, mend in zip(table.keys, table.values, strict=True):
                if reason is not None:
                    what = f"{UNKNOWN} {_texts(reason, {})[0]} {UNKNOWN}"
                    yield Line("placement", what, _texts(mend, {})[0])


def _outermost(tree: ast.Module) -> Iterator[_Function]:
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield inner


def _calls(function: _Function) -> list[ast.Call]:
    """Those that tell something."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    told = [call for call in calls if _name(call) in _TOLD or _is_warning(call.func)]
    return sorted(told, key=lambda call: call.lineno)


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _constants(tree: ast.Module) -> _Known:
    return {name: [value] for node in tree.body for name, value in _assigned(node)}


def _returned(functions: list[_Function]) -> _Known:
    found: _Known = {}
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                found.setdefault(f"{function.name}()", []).append(node.value)
    return found


def _before(call: ast.Call, function: _Function) -> _Known:
    """What the function's names stand for at the call: the last that was said on the way to it,
    and what branches before it may have said since."""
    found: _Known = {}
    steps = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    for step in sorted(steps, key=lambda step: step.lineno):
        if step.lineno <= call.lineno:
            for name, value in _assigned(step):
                on_the_way = any(
                    step in block and _holds(block, call) for block in _blocks(function)
                )
                found[name] = [value] if on_the_way else [*found.get(name, []), value]
    return found


def _blocks(function: _Function) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield block


def _holds(block: list[ast.stmt], call: ast.Call) -> bool:
    return any(node is call for statement in block for node in ast.walk(statement))


def _assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for name, part in zip(target.elts, value.elts, strict=True):
                if isinstance(name, ast.Name):
                    yield name.id, part


def _is_warning(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr in ("warning", "error")
        and isinstance(function.value, ast.Name)
        and function.value.id == "_log"
    )


def _texts(node: ast.expr, known: _Known) -> list[str]:
    """Each form that the text may have."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return _all([node.body, node.orelse], known)
    if isinstance(node, ast.BoolOp):
        return _all(node.values, known)
    if isinstance(node, ast.JoinedStr):
        return _joined([_texts(part, known) for part in node.values])
    if isinstance(node, ast.FormattedValue):
        return _texts(node.value, known)
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return _texts(node.value, {})
    if isinstance(node, ast.Name) and all(map(_is_text, known.get(node.id, [node]))):
        others = {name: values for name, values in known.items() if name != node.id}
        return _all(known[node.id], others)
    if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("container_state."):
        return _all(_constants(_parsed("oci/vcuda_oci/container_state.py"))[node.attr], {})
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = node.id if isinstance(node, ast.Name) else node.attr
        return [f"<{name.strip('_').lower()}>"]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "str":
            return _texts(node.args[0], known)
        told = known.get(f"{node.func.id}()", [node])
        if all(map(_is_text, told)):
            return _all(told, {})
    return [UNKNOWN]


def _all(nodes: list[ast.expr], known: _Known) -> list[str]:
    return list(dict.fromkeys(text for node in nodes for text in _texts(node, known)))


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) and _is_text(node.orelse)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _joined(parts: list[list[str]]) -> list[str]:
    texts = [""]
    for forms in parts:
        texts = [text + form for text in texts for form in forms]
    return texts
