"""Structures of NVML's answers about a GPU's memory and processes. Source: nvml.h."""

from __future__ import annotations

import ctypes

MOST_PROCESSES = 4096
NOT_AVAILABLE = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE


class Memory(ctypes.Structure):
    """nvmlMemory_t, bytes."""

    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Process(ctypes.Structure):
    """nvmlProcessInfo_t, the same in v2 and v3. used_bytes: may be NOT_AVAILABLE."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]
