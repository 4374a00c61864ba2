"""Find every version of Python that the start path supports."""

from __future__ import annotations

import glob
import os

from support.needed import skip_or_fail

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")


def python(version: str) -> str:
    """The path of this version in /usr, /usr/local or a version manager's folder."""
    named = [f"{folder}/bin/python{version}" for folder in ("/usr", "/usr/local")]
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    managed = glob.glob(f"{root}/versions/{version}.*/bin/python{version}")
    found = [path for path in (*named, *sorted(managed)) if os.access(path, os.X_OK)]
    if not found:
        skip_or_fail(f"no Python {version} in /usr, /usr/local or {root}")
    return os.path.realpath(found[0])
