"""Modules that are imported when something in them is called, and not before.

For what a package imports for uses of it that this process does not make.
"""

from __future__ import annotations

import contextlib
import pkgutil
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


@contextlib.contextmanager
def imported(*modules: str) -> Iterator[None]:
    """While it lasts, who imports one of `modules` gets what stands for it."""
    before = {name: sys.modules[name] for name in modules if name in sys.modules}
    sys.modules.update({name: _Later(name) for name in modules})
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
        sys.modules.update(before)


class _Later(types.ModuleType):
    """A module, or what is in one: called, it is imported."""

    def __getattr__(self, name: str) -> _Later:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(f"{self.__name__}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return pkgutil.resolve_name(self.__name__)(*arguments, **named)
