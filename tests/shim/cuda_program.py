"""The prelude of Python programs in a guest: cuda-bindings as `cu`."""

from __future__ import annotations

# `must` unwraps an answer.
CALLS = """
import json, os, sys
from cuda.bindings import driver as cu
def must(answer):
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]
"""

# With the primary context of GPU 0.
START = (
    CALLS
    + """
must(cu.cuInit(0))
device = must(cu.cuDeviceGet(0))
context = must(cu.cuDevicePrimaryCtxRetain(device))
must(cu.cuCtxSetCurrent(context))
"""
)
