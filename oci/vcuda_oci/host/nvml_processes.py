"""One process on a GPU as NVML lists it. Source: nvml.h."""

from __future__ import annotations

import ctypes

MOST_PROCESSES = 4096
NOT_AVAILABLE = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE


class Process(ctypes.Structure):
    """nvmlProcessInfo_t, which is the same in v2 and v3. used_bytes: or NOT_AVAILABLE."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]
