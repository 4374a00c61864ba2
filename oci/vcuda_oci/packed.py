"""The start path's modules in one file: to find and read thirty files takes Python 3 ms more.

``python3 -I -S …/vcuda_oci/packed.py`` writes it beside the interpreter's own compiled files, and
the same rules hold: what another interpreter wrote, or a module with a source of another time or
size now, is not used. That module is then imported from its own file.

The modules stand in the order in which their imports ended. So everything that the wrapper imports
can be run one after the other before it, and each import statement finds its module loaded: the
import system takes ten times as long for one. Each module's code is unpacked only when it runs.
"""

import gc
import marshal
import sys

# posix: `os` is a module of its own to load, and one that is packed.
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader, PathFinder
from posix import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Optional

_PACKAGE = "vcuda_oci"
_WRAPPER, _LIGHT_OS = _PACKAGE + ".start.main", _PACKAGE + ".system.light_os"
_FOLDER = __file__.rpartition("/")[0]
FILE = f"{_FOLDER}/__pycache__/start.{sys.implementation.cache_tag}.packed"
_OF_THIS_PYTHON = sys.version.encode() + b"\0"


class Packed:
    """Finds and loads what is in the file.

    modules: by name, where a source is and was, and its code, marshalled; b"" for an extension
    module, of which only the path is known.
    """

    def __init__(self, modules: "dict[str, tuple[str, int, int, bytes]]") -> None:
        self.modules = modules

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Optional[Any]":
        if not self._is_unchanged(name):
            return None
        source, _, _, code = self.modules[name]
        loader = self if code else ExtensionFileLoader(name, source)
        found = ModuleSpec(name, loader, origin=_place(source))  # type: ignore[arg-type]
        if not code:
            found.has_location = True
        if source.endswith("/__init__.py"):
            found.submodule_search_locations = [_place(source)[: -len("/__init__.py")]]
        return found

    def create_module(self, spec: "Any") -> None:
        return None  # the interpreter's own kind

    def exec_module(self, module: "ModuleType") -> None:
        if module.__name__ == _WRAPPER:
            self._load_before(_WRAPPER)
        module.__file__ = module.__spec__.origin  # type: ignore[union-attr]
        self._run(module)

    def _is_unchanged(self, name: str) -> bool:
        if name not in self.modules:
            return False
        source, seconds, size, _ = self.modules[name]
        try:
            now = stat(_place(source))
        except OSError:
            return False
        return (int(now.st_mtime), now.st_size) == (seconds, size)

    def _load_before(self, last: str) -> None:
        """Load what `last` imports, without the import system, up to a source that has changed."""
        for name in list(self.modules):
            if name == last:
                return
            if not name.startswith(_PACKAGE + ".") or name in sys.modules:
                continue
            if not self._is_unchanged(name):
                return  # the import system has its source
            self._load(name)
            if name == _LIGHT_OS:
                sys.modules[name].install()

    def _load(self, name: str) -> None:
        parent, _, own_name = name.rpartition(".")
        module = type(sys)(name)
        module.__file__ = file = _place(self.modules[name][0])
        module.__loader__, module.__package__ = self, parent  # type: ignore[assignment]
        if file.endswith("/__init__.py"):
            module.__package__, module.__path__ = name, [file[: -len("/__init__.py")]]
        sys.modules[name] = module
        try:
            self._run(module)
        except BaseException:
            del sys.modules[name]
            raise
        setattr(sys.modules[parent], own_name, module)

    def _run(self, module: "ModuleType") -> None:
        code = marshal.loads(self.modules.pop(module.__name__)[3])  # noqa: S302 (see use)
        exec(code, module.__dict__)  # noqa: S102 (an import does)


class Packer:
    """Loads modules from their sources, and collects them in the order in which that ends."""

    def __init__(self) -> None:
        self.modules: dict[str, tuple[str, int, int, bytes]] = {}

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Optional[Any]":
        found = PathFinder.find_spec(name, path)
        if not found or not found.origin:
            return found
        if found.origin.endswith(".py"):
            found.loader = self  # type: ignore[assignment]
        elif isinstance(found.loader, ExtensionFileLoader):
            self._add(name, found.origin, b"")
        return found

    def create_module(self, spec: "Any") -> None:
        return None

    def exec_module(self, module: "ModuleType") -> None:
        name, source = module.__name__, str(module.__file__)
        with open(source, "rb") as file:
            text = file.read()
        is_ours = name.startswith(_PACKAGE + ".")
        # 2: without docstrings, which no start reads.
        code = compile(text, source, "exec", dont_inherit=True, optimize=2 if is_ours else -1)
        exec(code, module.__dict__)  # noqa: S102 (an import does)
        self._add(name, source, marshal.dumps(code))

    def _add(self, name: str, source: str, code: bytes) -> None:
        status = stat(source)
        is_ours = name.startswith(_PACKAGE + ".")
        kept = source[len(_FOLDER) + 1 :] if is_ours else source
        self.modules[name] = (kept, int(status.st_mtime), status.st_size, code)


def _place(source: str) -> str:
    """Ours lie where this very file does, wherever an installation was moved to."""
    return source if source[0] == "/" else f"{_FOLDER}/{source}"


def use() -> None:
    """From now on imports look into the file first; without a whole one nothing else changes."""
    gc.disable()  # a start ends long before there is garbage worth looking for
    try:
        with open(FILE, "rb", 0) as file:
            content = file.read()
        if not content.startswith(_OF_THIS_PYTHON):
            return
        # Trusted as the compiled files beside it are: only root can write here.
        modules = marshal.loads(memoryview(content)[len(_OF_THIS_PYTHON) :])  # noqa: S302
    except (OSError, EOFError, ValueError, TypeError):
        return
    # Before the search of folders, behind what the interpreter holds itself.
    sys.meta_path.insert(-1, Packed(modules))


def pack() -> None:
    """Write the file: what the wrapper and the poststop hook load, the standard library's too.

    Raises OSError.
    """
    sys.path.insert(0, _FOLDER.rpartition("/")[0])
    packer = Packer()
    sys.meta_path.insert(-1, packer)
    for name in (_LIGHT_OS, _WRAPPER, _PACKAGE + ".start.poststop"):
        __import__(name)
    from vcuda_oci.system import files  # only now: the packer must load it first

    files.replace(FILE, _OF_THIS_PYTHON + marshal.dumps(packer.modules), 0o644)


if __name__ == "__main__":
    pack()
else:
    use()
