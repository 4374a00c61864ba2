"""Skip a test when this machine lacks something that the test needs."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test, or the file that is being imported; fail in CI, which has everything."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def given_or_skip(variable: str, what: str) -> str:
    """The folder that the environment names; without it skip the test, in CI too.

    For programs that Debian has no package of.
    """
    folder = os.environ.get(variable, "")
    if not folder:
        pytest.skip(f"no {what} given: set {variable} to a folder with it", allow_module_level=True)
    return os.path.abspath(folder)
