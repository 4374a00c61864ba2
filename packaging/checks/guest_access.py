"""Refuses code that reaches files unsafely: what a container or another user of the host can reach.

`oci/vcuda_oci/guest/` has the safe forms. Outside of it these are refused:

- each use of files by path (file_uses.py, c_file_uses.py) that guest_access.toml does not name,
  with the place that its paths are in and why root alone can redirect them
- an entry there that nothing uses any more
- a path below /proc/<pid>/fd, root, cwd or map_files: it can name another file at each use
- reads of the kernel's tables in /proc, which contain names that users choose, and of anything in
  /proc as text
- a lock without LOCK_NB, which can wait for ever

Usage: guest_access.py FOLDER..., of all packages
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import c_file_uses
import file_uses
from file_uses import Use

_GUEST = "/vcuda_oci/guest/"
_TABLE_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest_access.toml")

_OF_A_PROCESS = re.compile(
    r"/proc/(?!self/)[^/]+/(fd|root|cwd|map_files)\b|\}/(fd|map_files)/|\}/\{\}/(root|cwd)\b"
)
_TABLES = "cgroup|mountinfo|mounts|maps|smaps|status|comm|[ug]id_map"
_TABLE_OPENED = re.compile(rf"(^|\}}/|^/proc/.*/)({_TABLES})$")
_TABLE = re.compile(rf"^/proc/[^/]+/({_TABLES})$")

_USE_TABLES = "a table of the kernel's; use vcuda_oci.system.kernel_tables"
# Python before 3.11 has no tomllib. Comments and [place] headings match without groups.
_ENTRY = re.compile(r'^(?:#.*|\[\w+\]|"?([\w./]+)"? = "(?:""\\?)?([^"]*)"(?:"")?)$', re.MULTILINE)
_HINT = (
    "use vcuda_oci.guest if a container or another user can reach it, "
    "else list it in packaging/checks/guest_access.toml"
)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Fault(NamedTuple):
    line: int
    what: str


class Allowed:
    """The entries of guest_access.toml: names that may be used, by (module, function)."""

    def __init__(self, entries: Iterable[tuple[str, str]]) -> None:
        self._names: dict[tuple[str, str], set[str]] = {}
        self._unused: set[tuple[str, str]] = set()
        for module, entry in entries:
            functions, _, names = (part.split() for part in entry.partition(":"))
            for function in functions:
                self._names.setdefault((module, function), set()).update(names)
            self._unused.update((module, each) for each in (*functions, *names))

    def faults(self, module: str, uses: Iterable[Use]) -> Iterator[Fault]:
        for line, function, name in uses:
            self._unused -= {(module, function), (module, name)}
            if name not in self._names.get((module, function), ()):
                yield Fault(line, f"{name} in {function} of {module}; {_HINT}")

    def unused(self) -> list[str]:
        return [f"{module}: {what} is not used there; remove it" for module, what in self._unused]


def load() -> Allowed:
    """Read guest_access.toml. Raises ValueError: a line is not an entry."""
    with open(_TABLE_FILE, encoding="utf-8") as file:
        text = file.read()
    if rest := _ENTRY.sub("", text).strip():
        raise ValueError(f"{_TABLE_FILE}: is no entry: {rest.splitlines()[0]}")
    return Allowed((module, entry) for module, entry in _ENTRY.findall(text) if "." in module)


def faults(source: str, path: str, allowed: Allowed) -> list[Fault]:
    """What is unsafe in a file. path: its folders from the package on give the module's name."""
    if _GUEST in path:
        return []
    module = module_of(path)
    if not path.endswith(".py"):
        return list(allowed.faults(module, c_file_uses.uses(source)))
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    _drop_docstrings(nodes)
    found = [*_paths_of_processes(nodes), *_tables(nodes), *_split_lines(nodes), *_locks(nodes)]
    return sorted({*found, *allowed.faults(module, file_uses.uses(tree, module))})


def module_of(path: str) -> str:
    if not path.endswith(".py"):
        return "/".join(path.split("/")[-2:])
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts[next(at for at, part in enumerate(parts) if part in file_uses.OURS) :])


def _paths_of_processes(nodes: Iterable[ast.AST]) -> Iterator[Fault]:
    for node in nodes:
        if isinstance(node, ast.expr) and _OF_A_PROCESS.search(_text(node)):
            yield Fault(node.lineno, "a path below /proc/<pid>; use vcuda_oci.guest.process")


def _tables(nodes: Sequence[ast.AST]) -> Iterator[Fault]:
    for node in nodes:
        if isinstance(node, ast.expr) and _TABLE.search(_text(node)):
            yield Fault(node.lineno, _USE_TABLES)
    for call in _calls(nodes):
        name, first = ast.unparse(call.func), _text(call.args[0]) if call.args else ""
        if name in ("open", "os.open", "files.read") and _TABLE_OPENED.search(first):
            yield Fault(call.lineno, _USE_TABLES)
        if name == "open" and first.startswith("/proc/") and not _is_binary(call):
            yield Fault(
                call.lineno, "text of /proc, where a name can end a line; open it with 'rb'"
            )


def _split_lines(nodes: Sequence[ast.AST]) -> Iterator[Fault]:
    if not any(_text(node).startswith("/proc/") for node in nodes):
        return
    for function in (node for node in nodes if isinstance(node, _FUNCTIONS)):
        inner = list(ast.walk(function))
        names_proc = any(_text(node).startswith("/proc/") for node in inner)
        for call in _calls(inner) if names_proc else ():
            if ast.unparse(call.func).endswith(".splitlines"):
                yield Fault(call.lineno, "splitlines of /proc; split at line feeds alone")


def _locks(nodes: Sequence[ast.AST]) -> Iterator[Fault]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr.endswith("SETLKW"):
            yield Fault(
                node.lineno, f"{node.attr} can wait for ever; use vcuda_oci.system.own_lock"
            )
    for call in _calls(nodes):
        name = ast.unparse(call.func)
        if name.endswith(("flock", "lockf")) and "LOCK_NB" not in ast.unparse(call):
            yield Fault(call.lineno, f"{name} can wait for ever; use vcuda_oci.system.own_lock")


def _is_binary(call: ast.Call) -> bool:
    words = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
    return any("b" in _text(word) for word in words)


def _calls(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    return (node for node in nodes if isinstance(node, ast.Call))


def _text(node: ast.AST) -> str:
    """The text of a string, with {} for each inserted value; "": not a string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{}" for part in node.values)
    return ""


def _drop_docstrings(nodes: Iterable[ast.AST]) -> None:
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None


def main(folders: Sequence[str]) -> int:
    allowed = load()
    lines = []
    for folder in folders:
        for place, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                path = os.path.join(place, name)
                if name.endswith((".py", ".c", ".h")):
                    with open(path, encoding="utf-8") as file:
                        found = faults(file.read(), path, allowed)
                    lines += [f"{path}:{fault.line}: {fault.what}" for fault in found]
    lines += [f"{_TABLE_FILE}: {line}" for line in sorted(allowed.unused())]
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
