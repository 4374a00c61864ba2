"""Refuses code that acts unsafely on what a container, or another user of the host, can reach.

`oci/vcuda_oci/guest/` has the safe forms. Outside of it these are refused:

- a path below /proc/<pid>/fd, root, cwd or map_files: it can be another file with each look
- os.truncate, chown, chmod, utime, setxattr, removexattr: by path, not by a checked descriptor
- a call that opens or stats a path in a function that names a usage or limits page
- os.open that can wait for a file lease or a FIFO: without O_NONBLOCK, O_PATH, O_DIRECTORY, O_CREAT
- flock and lockf that can wait for ever: without LOCK_NB
- the kernel's tables in /proc, which hold names that users choose, and anything there read as text

Usage: guest_access.py FOLDER...
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Union

_GUEST = "/vcuda_oci/guest/"
# These change what only root can reach: the engines' configuration, and what they have just made in
# a folder of root's.
_MAY_CHANGE_BY_PATH = (
    "vcuda_hook/engine_file.py",
    "vcuda_plugin/http_child.py",
    "vcuda_plugin/pod_lookup.py",
    "vcuda_plugin/scheduler/certificates.py",
)

_OF_A_PROCESS = re.compile(r"/proc/(?!self/)[^/]+/(fd|root|cwd|map_files)\b|\}/(fd|map_files)/")
_CHANGES = {"truncate", "chown", "lchown", "chmod", "utime", "setxattr", "removexattr"}
_LOOKS = {"os.open", "open", "os.stat", "os.lstat", "files.read", "files.replace"}
_PAGE = re.compile(r"/(usage|limits)$")
_TABLES = "cgroup|mountinfo|mounts|maps|smaps|status|comm|[ug]id_map"
_TABLE_OPENED = re.compile(rf"(^|\}}/|^/proc/.*/)({_TABLES})$")
_TABLE = re.compile(rf"^/proc/[^/]+/({_TABLES})$")
_NO_WAIT = ("O_NONBLOCK", "O_PATH", "O_DIRECTORY", "O_CREAT", "os.devnull")

_USE_TABLES = "a table of the kernel's; use vcuda_oci.guest.kernel_tables"

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


class Fault(NamedTuple):
    line: int
    what: str


def faults(source: str, path: str) -> list[Fault]:
    """What is unsafe in the module at `path`."""
    if _GUEST in path:
        return []
    tree = ast.parse(source)
    _drop_docstrings(tree)
    found = [*_paths_of_processes(tree), *_tables(tree), *_changes_by_path(tree, path)]
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found += _opens(function)
    return sorted(set(found))


def _paths_of_processes(tree: ast.AST) -> Iterator[Fault]:
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and _OF_A_PROCESS.search(_text(node)):
            yield Fault(node.lineno, "a path below /proc/<pid>; use vcuda_oci.guest.process")


def _tables(tree: ast.AST) -> Iterator[Fault]:
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and _TABLE.search(_text(node)):
            yield Fault(node.lineno, _USE_TABLES)
    for call in _calls(tree):
        name, first = ast.unparse(call.func), _text(call.args[0]) if call.args else ""
        if name in ("open", "os.open", "files.read") and _TABLE_OPENED.search(first):
            yield Fault(call.lineno, _USE_TABLES)
        if name == "open" and first.startswith("/proc/") and not _is_binary(call):
            yield Fault(
                call.lineno, "text of /proc, where a name can end a line; open it with 'rb'"
            )
    functions = (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))
    for function in functions:
        names_proc = any(_text(node).startswith("/proc/") for node in ast.walk(function))
        for call in _calls(function) if names_proc else ():
            if ast.unparse(call.func).endswith(".splitlines"):
                yield Fault(call.lineno, "splitlines of /proc; split at line feeds alone")


def _is_binary(call: ast.Call) -> bool:
    words = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
    return any("b" in _text(word) for word in words)


def _changes_by_path(tree: ast.AST, path: str) -> Iterator[Fault]:
    for call in _calls(tree):
        name = ast.unparse(call.func)
        if name[:3] == "os." and name[3:] in _CHANGES and not path.endswith(_MAY_CHANGE_BY_PATH):
            first = ast.unparse(call.args[0])
            if first != "fd":
                yield Fault(call.lineno, f"{name} by path; use a descriptor that was checked")


def _opens(function: _Function) -> Iterator[Fault]:
    source = ast.unparse(function)
    names_a_page = any(_PAGE.search(_text(node)) for node in ast.walk(function))
    for call in _calls(function):
        name = ast.unparse(call.func)
        if names_a_page and name in _LOOKS:
            yield Fault(call.lineno, f"{name} of a page; use vcuda_oci.guest.page_file")
        if name == "os.open" and not any(flag in source for flag in _NO_WAIT):
            yield Fault(call.lineno, "os.open can wait for a lease or a FIFO; add O_NONBLOCK")
        if name in ("fcntl.flock", "fcntl.lockf") and "LOCK_NB" not in ast.unparse(call):
            yield Fault(call.lineno, f"{name} can wait for ever; use vcuda_oci.own_lock")


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _text(node: ast.AST) -> str:
    """Of a text, with {} for what is put in; "": it is none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{}" for part in node.values)
    return ""


def _drop_docstrings(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.copy_location(ast.Constant(None), node.value)


def main(folders: Sequence[str]) -> int:
    count = 0
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in sorted(names):
                path = os.path.join(place, name)
                if not name.endswith(".py"):
                    continue
                with open(path, encoding="utf-8") as file:
                    for fault in faults(file.read(), path):
                        print(f"{path}:{fault.line}: {fault.what}", file=sys.stderr)
                        count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
