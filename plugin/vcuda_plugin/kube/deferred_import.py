"""Placeholders for modules that are imported only when something in them is called.

They save memory for modules that a package imports, but that this process never uses.
"""

from __future__ import annotations

import contextlib
import pkgutil
import sys
import types
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def imported(*modules: str) -> Iterator[None]:
    """Within the context, an import of one of `modules` returns a placeholder."""
    before = {name: sys.modules[name] for name in modules if name in sys.modules}
    sys.modules.update({name: _Later(name) for name in modules})
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
        sys.modules.update(before)


class _Later(types.ModuleType):
    """Placeholder for a module or one of its members; a call imports the real one."""

    def __getattr__(self, name: str) -> _Later:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(f"{self.__name__}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return pkgutil.resolve_name(self.__name__)(*arguments, **named)
