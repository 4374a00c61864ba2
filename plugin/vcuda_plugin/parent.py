"""A child of the agent does not outlive it."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def end_with_it() -> None:
    """SIGTERM to this process when the one that started it has ended, however that came.

    Source: prctl(2).
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
