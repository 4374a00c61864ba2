"""The start path's modules in one file, each bare: to find and read thirty takes Python 3 ms more.

``python3 -I -S …/vcuda_oci/packed.py`` writes it beside the interpreter's own compiled files, and
its rules are theirs: what another interpreter wrote, or of a source whose time or size is another
now, is not believed. Then that module is imported from its own file, as without all this.
"""

import gc
import marshal
import sys

# posix: `os` is a module of its own to load, and one that is packed.
from _frozen_importlib import ModuleSpec
from _imp import is_frozen
from posix import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, Optional

_PACKAGE = "vcuda_oci"
_FOLDER = __file__.rpartition("/")[0]
FILE = f"{_FOLDER}/__pycache__/start.{sys.implementation.cache_tag}.packed"
_OF_THIS_PYTHON = sys.version.encode() + b"\0"


class Packed:
    """Finds and loads what is in the file: by name, where a source is and was, and its code."""

    def __init__(self, modules: "dict[str, tuple[str, int, int, CodeType]]") -> None:
        self.modules = modules

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Optional[Any]":
        if name not in self.modules:
            return None
        source, seconds, size, _ = self.modules[name]
        try:
            now = stat(_place(source))
        except OSError:
            return None
        if (int(now.st_mtime), now.st_size) != (seconds, size):
            return None
        found = ModuleSpec(name, self, origin=_place(source))  # type: ignore[arg-type]
        folder, _, file = _place(source).rpartition("/")
        if file == "__init__.py":
            found.submodule_search_locations = [folder]
        return found

    def create_module(self, spec: "Any") -> None:
        return None  # the interpreter's own kind

    def exec_module(self, module: "ModuleType") -> None:
        module.__file__ = module.__spec__.origin  # type: ignore[union-attr]
        exec(self.modules.pop(module.__name__)[3], module.__dict__)  # noqa: S102 (an import does)


def _place(source: str) -> str:
    """Ours lie where this very file does, wherever an installation was moved to."""
    return source if source[0] == "/" else f"{_FOLDER}/{source}"


def use() -> None:
    """From now on imports look into the file first; without a whole one nothing else changes."""
    gc.disable()  # a start ends long before there is garbage worth looking for
    try:
        with open(FILE, "rb") as file:
            content = file.read()
        if not content.startswith(_OF_THIS_PYTHON):
            return
        # Trusted as the compiled files beside it are: whoever writes here is root.
        modules = marshal.loads(memoryview(content)[len(_OF_THIS_PYTHON) :])  # noqa: S302
    except (OSError, EOFError, ValueError, TypeError):
        return
    # Before the search of folders, behind what the interpreter holds itself.
    sys.meta_path.insert(-1, Packed(modules))


def pack() -> None:
    """Write the file: what the wrapper and the poststop hook load, the standard library's too.

    Raises OSError.
    """
    before = set(sys.modules)
    sys.path.insert(0, _FOLDER.rpartition("/")[0])
    from vcuda_oci import files, poststop, runtime  # noqa: F401

    loaded = sorted(set(sys.modules) - before - {_PACKAGE})
    from vcuda_oci.bare import bare  # what this imports is no part of a start

    modules = {}
    for name in loaded:
        source = getattr(sys.modules[name], "__file__", None) or ""
        if not source.endswith(".py") or is_frozen(name) or sys.modules[name].__name__ != name:
            continue
        status = stat(source)
        text = files.read(source)
        is_ours = name.startswith(_PACKAGE + ".")
        code = compile(bare(text) if is_ours else text, source, "exec", dont_inherit=True)
        kept = source[len(_FOLDER) + 1 :] if is_ours else source
        modules[name] = (kept, int(status.st_mtime), status.st_size, code)
    files.replace(FILE, _OF_THIS_PYTHON + marshal.dumps(modules), 0o644)


if __name__ == "__main__":
    pack()
else:
    use()
