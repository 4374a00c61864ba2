"""What a text of a Python source may say, read off its syntax tree.

What is known at run time only stands as <its name>, or as … where it has none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from error_line import REPOSITORY, UNKNOWN

Function = ast.FunctionDef | ast.AsyncFunctionDef
# What a name, or a function of this module, may stand for.
Known = dict[str, list[ast.expr]]
# Modules that others take words from.
_TOLD_ELSEWHERE = {
    "container_state": "oci/vcuda_oci/container_state.py",
    "dependencies": "plugin/vcuda_plugin/dependencies.py",
}


def parsed(path: str) -> ast.Module:
    with open(f"{REPOSITORY}/{path}") as file:
        return ast.parse(file.read())


def outermost(tree: ast.Module) -> Iterator[Function]:
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield inner


def constants(tree: ast.Module) -> Known:
    return {name: [value] for node in tree.body for name, value in _assigned(node)}


def returned(functions: list[Function]) -> Known:
    found: Known = {}
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                found.setdefault(f"{function.name}()", []).append(node.value)
    return found


def before(call: ast.Call, function: Function) -> Known:
    """What the function's names stand for at the call: the last that was said on the way to it,
    and what branches before it may have said since."""
    found: Known = {}
    steps = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    for step in sorted(steps, key=lambda step: step.lineno):
        if step.lineno <= call.lineno:
            for name, value in _assigned(step):
                on_the_way = any(
                    step in block and _holds(block, call) for block in _blocks(function)
                )
                found[name] = [value] if on_the_way else [*found.get(name, []), value]
    return found


def _blocks(function: Function) -> Iterator[list[ast.stmt]]:
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


def texts(node: ast.expr, known: Known) -> list[str]:
    """Each form that the text may have."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return _all([node.body, node.orelse], known)
    if isinstance(node, ast.BoolOp):
        return _all(node.values, known)
    if isinstance(node, ast.JoinedStr):
        return _joined([texts(part, known) for part in node.values])
    if isinstance(node, ast.FormattedValue):
        return texts(node.value, known)
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return texts(node.value, {})
    if isinstance(node, ast.Name) and all(map(_is_text, known.get(node.id, [node]))):
        others = {name: values for name, values in known.items() if name != node.id}
        return _all(known[node.id], others)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined([texts(part, known) for part in (node.left, node.right)])
    if isinstance(node, ast.Attribute) and (told := _elsewhere(node)):
        return _all(told, {})
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = node.id if isinstance(node, ast.Name) else node.attr
        return [f"<{name.strip('_').lower()}>"]
    if isinstance(node, ast.Call):
        return _called(node, known)
    return [UNKNOWN]


def _called(call: ast.Call, known: Known) -> list[str]:
    if isinstance(call.func, ast.Attribute):
        if call.func.attr in ("encode", "decode"):
            return texts(call.func.value, known)
        told = _elsewhere(call.func) or [call]
    else:
        if ast.unparse(call.func) == "str":
            return texts(call.args[0], known)
        told = known.get(f"{ast.unparse(call.func)}()", [call])
    return _all(told, {}) if all(map(_is_text, told)) else [UNKNOWN]


def _elsewhere(node: ast.Attribute) -> list[ast.expr]:
    """What a constant of another module is, or a function of it returns."""
    path = _TOLD_ELSEWHERE.get(ast.unparse(node.value))
    if path is None:
        return []
    tree = parsed(path)
    named = {**constants(tree), **returned(list(outermost(tree)))}
    return named.get(node.attr) or named.get(f"{node.attr}()", [])


def _all(nodes: list[ast.expr], known: Known) -> list[str]:
    return list(dict.fromkeys(text for node in nodes for text in texts(node, known)))


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
