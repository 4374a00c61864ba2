"""``vcuda simulate``: exec the scheduler extender's program, which has the code."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from vcuda_oci.model.errors import VcudaError

_PROGRAM = "vcuda-scheduler-extender"


def simulate(words: Sequence[str]) -> NoReturn:
    """words: the arguments after the verb. Raises VcudaError."""
    beside = os.path.dirname(os.path.realpath(sys.argv[0]))
    path = shutil.which(_PROGRAM, path=beside) or shutil.which(_PROGRAM)
    if not path:
        what, hint = "not installed", f"install the package {_PROGRAM}"
        raise VcudaError(what, f"simulate: {_PROGRAM}", hint)
    os.execv(path, [path, "simulate", *words])
