"""Commands that run a module of vcuda as a program, in a Python without the caller's settings."""

from __future__ import annotations

import os
import sys

import vcuda_hook
import vcuda_oci

_START = """
import sys
sys.path[:0] = sys.argv.pop(1).split(":")
from {} import main
main(*sys.argv[1:])
"""


def command(module: str, *arguments: str) -> list[str]:
    """The command that calls `main` of the module, below vcuda_hook, with these arguments."""
    # The installation has one folder for all packages, the source tree two.
    places = [
        os.path.dirname(os.path.dirname(os.path.abspath(path or "")))
        for path in (vcuda_oci.__file__, vcuda_hook.__file__)
    ]
    start = _START.format(f"vcuda_hook.{module}")
    return [sys.executable, "-ISBc", start, ":".join(places), *arguments]
