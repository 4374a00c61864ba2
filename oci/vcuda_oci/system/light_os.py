"""A stand-in for `os` that imports no abstract base classes, which saves 1 ms on each start.

It contains the functions of `posix` and `posixpath`, which the wrapper needs. The first use of any
other name imports the real module, which then replaces the stand-in in sys.modules.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def install() -> None:
    """Make `import os` return the stand-in, unless the real module is loaded."""
    if "os" in sys.modules:
        return
    light = type(sys)("os")
    for name, value in vars(posix).items():
        if not name.startswith("__") and name != "environ":  # os.environ has text, posix's bytes
            light.__dict__[name] = value
    light.__dict__["__getattr__"] = _from_real
    sys.modules["os"] = light
    import posixpath  # only now, because it imports os

    light.path = sys.modules["os.path"] = posixpath  # type: ignore[attr-defined]


def _from_real(name: str) -> "Any":
    if sys.modules["os"].__spec__ is None:
        del sys.modules["os"]
    import os as real  # puts itself into sys.modules

    return getattr(real, name)
