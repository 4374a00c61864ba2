"""Finds each use of files by path in a module: every name that can reach one, of Python's or ours.

A name is followed through imports to its full name: `o.chmod` after `import os as o` is os.chmod.
The names that reach no file are listed here. Any other name of a module that reaches files is a
use, called or not. So is the import of a module that is not listed.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

OURS = ("vcuda_oci", "vcuda_hook", "vcuda_plugin")
# Each name of these modules is a use, except constants, such as O_PATH, and the names below. Our
# helpers open what they are given.
_REACHING = (
    "os", "io", "fcntl", "shutil", "tempfile", "glob", "pathlib", "posix", "builtins",
    "importlib", "linecache", "tokenize", "vcuda_oci.system.files", "vcuda_oci.system.own_lock",
)  # fmt: skip
_HARMLESS_NAMES = {
    "os": """
        devnull
        close dup dup2 fchmod fdopen fstat fsync ftruncate isatty memfd_create pipe
        posix_fallocate pread pwrite read set_blocking write get_terminal_size
        _exit fork getcwd getegid geteuid getpid getppid kill killpg pidfd_open setgroups
        setpgid setresgid setresuid setsid umask waitpid waitstatus_to_exitcode
        environ environ.get fsdecode fsencode major makedev minor stat_result strerror
        terminal_size uname""",
    "os.path": "abspath basename dirname isabs join normpath relpath sameopenfile samestat split",
    "shutil": "get_terminal_size",
    "argparse": "_SubParsersAction",
}
_HARMLESS = frozenset(
    f"{module}.{name}" for module, names in _HARMLESS_NAMES.items() for name in names.split()
)
# Other modules that may be imported: each of their names is harmless, except those in _NOT_PLAIN.
_PLAIN_NAMES = """
    __future__ _json _signal argparse array ast asyncio base64 bisect calendar collections
    contextlib csv ctypes dataclasses datetime difflib email errno fnmatch fractions functools
    gc google grpc h11 hashlib heapq html httptools ipaddress itertools json kubernetes logging
    marshal math numpy orjson prometheus_client random re resource secrets select signal socket
    ssl stat statistics struct subprocess sys termios textwrap threading time traceback tty
    types typing urllib urllib3 uuid uvicorn uvloop vcuda_oci vcuda_hook vcuda_plugin"""
_PLAIN = frozenset(_PLAIN_NAMES.split())
_NOT_PLAIN = (
    "asyncio.open_unix_connection", "asyncio.start_unix_server", "ctypes.CDLL", "ctypes.PyDLL",
    "ctypes.cdll", "ctypes.pythonapi", "ctypes.util", "argparse.FileType", "logging.FileHandler",
    "logging.config", "logging.handlers", "numpy.fromfile", "numpy.genfromtxt", "numpy.load",
    "numpy.loadtxt", "numpy.memmap", "numpy.save", "numpy.savetxt", "numpy.savez",
    "socket.AF_UNIX", "sys.modules", "types.CodeType", "types.FunctionType",
)  # fmt: skip
# Attributes that lead from a function or module to its global names.
_LEADS_ON = (
    "__globals__", "__builtins__", "__self__", "__loader__", "__subclasses__",
    "f_builtins", "f_globals",
)  # fmt: skip
_BUILTINS = ("open", "eval", "exec", "compile", "globals", "vars", "__import__", "__builtins__")
# A process's folder in /proc, or /proc itself; not the kernel's own entries, as /proc/sys.
_OF_PROCESSES = re.compile(r"^/proc/?($|[{%])")

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Use(NamedTuple):
    """function: with its class and outer functions, as A.f; "<module>": outside of each."""

    line: int
    function: str
    name: str


def uses(tree: ast.Module, module: str) -> list[Use]:
    """module: its full name. tests/unit/project/test_guest_access.py shows what counts."""
    finder = _Finder(tree, module)
    finder.look(tree, "<module>")
    return sorted(finder.found)


class _Finder:
    def __init__(self, tree: ast.AST, module: str) -> None:
        self.found: set[Use] = set()
        self._module = module
        # A name can be imported as several things, in several functions.
        self._names = {name: {name} for name in _BUILTINS}
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for name, whole in _imported(node, module):
                    self._names.setdefault(name, set()).add(whole)

    def look(self, node: ast.AST, function: str, in_class: bool = False) -> None:
        if isinstance(node, _SCOPES):
            function = node.name if function == "<module>" else f"{function}.{node.name}"
            in_class = isinstance(node, ast.ClassDef)
        if isinstance(node, (ast.Attribute, ast.Name)):
            names = self._full_names(node)
            self._add(node.lineno, function, filter(_is_use, names))
            if names:
                return  # do not count `a.b` in `a.b.c` again
            if isinstance(node, ast.Attribute) and node.attr in _LEADS_ON:
                self._add(node.lineno, function, [node.attr])
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._add(node.lineno, function, self._hidden_by(node, in_class))
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "getattr" and node.args:
                names = [f"getattr({name})" for name in self._full_names(node.args[0])]
                self._add(node.lineno, function, names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = ["/proc/<pid>"] if _OF_PROCESSES.search(node.value) else []
            self._add(node.lineno, function, names)
        for child in ast.iter_child_nodes(node):
            self.look(child, function, in_class)

    def _hidden_by(self, node: ast.Import | ast.ImportFrom, in_class: bool) -> Iterator[str]:
        """Uses that the names of this import do not show: it renames them or is in a class."""
        for name, whole in _imported(node, self._module):
            is_renamed = in_class or name != whole.rpartition(".")[2]
            is_hidden = _is_use(whole) and (is_renamed or whole not in _REACHING)
            if is_hidden or _is_unknown(whole):
                yield whole

    def _add(self, line: int, function: str, names: Iterable[str]) -> None:
        self.found.update(Use(line, function, name) for name in names)

    def _full_names(self, node: ast.expr) -> list[str]:
        if isinstance(node, ast.Name):
            return sorted(self._names.get(node.id, ()))
        if isinstance(node, ast.Attribute):
            return [f"{base}.{node.attr}" for base in self._full_names(node.value)]
        return []


def _imported(node: ast.Import | ast.ImportFrom, module: str) -> list[tuple[str, str]]:
    """Each name that the statement gives the module, and the full name of what it is."""
    if isinstance(node, ast.Import):
        first = [alias.name.partition(".")[0] for alias in node.names if not alias.asname]
        whole = [(alias.asname, alias.name) for alias in node.names if alias.asname]
        return [*whole, *((name, name) for name in first)]
    above = module.split(".")[: -node.level] if node.level else []
    base = ".".join([*above, *([node.module] if node.module else [])])
    return [(alias.asname or alias.name, f"{base}.{alias.name}") for alias in node.names]


@functools.cache
def _is_use(name: str) -> bool:
    parts = name.split(".")
    if parts[0] in _BUILTINS or any(part in (*_LEADS_ON, "__dict__") for part in parts):
        return True
    # A module's own names may be what it has imported: random._os.unlink.
    is_private = any(part.startswith("_") and part[1:2] != "_" for part in parts[1:])
    if is_private and parts[0] not in OURS and name not in _HARMLESS:
        return True
    # Also by a module that has imported it: subprocess.os.chmod.
    for at in range(len(parts)):
        rest = ".".join(parts[at:])
        if _is_below(rest, _REACHING):
            return rest not in _HARMLESS and not rest.rpartition(".")[2].isupper()
        if _is_below(rest, _NOT_PLAIN):
            return True
    return False


def _is_below(name: str, modules: Collection[str]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


@functools.cache
def _is_unknown(name: str) -> bool:
    """Whether it is of a module that is not listed here, or all names of one."""
    return name.endswith(".*") or not _is_below(name, (*_PLAIN, *_REACHING))
