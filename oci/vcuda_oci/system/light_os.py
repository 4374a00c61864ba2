"""`os` without its abstract base classes, which take a start a millisecond of processor time.

The wrapper calls functions of `posix` and `posixpath`, which the real module only passes on. The
first use of any other name imports the real one, and from then on every import finds that.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def install() -> None:
    """Have `import os` find this, unless the real module is loaded."""
    if "os" in sys.modules:
        return
    light = type(sys)("os")
    for name, value in vars(posix).items():
        if not name.startswith("__") and name != "environ":  # the real one has strings in it
            light.__dict__[name] = value
    light.__dict__["__getattr__"] = _from_real
    sys.modules["os"] = light
    import posixpath  # after that: it imports os

    light.path = sys.modules["os.path"] = posixpath  # type: ignore[attr-defined]


def _from_real(name: str) -> "Any":
    if sys.modules["os"].__spec__ is None:
        del sys.modules["os"]
    import os as real  # puts itself into sys.modules

    return getattr(real, name)
