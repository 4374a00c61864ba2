"""Sensors of one GPU by NVML: temperature, power, clocks, traffic. Unknown figures are absent.

Source: nvml.h, nvmlDeviceGetTemperature and the functions named below; nvmlFieldValue_t.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_TEMPERATURE_GPU = 0
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_PCIE_SENT, _PCIE_RECEIVED = 0, 1
# NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX, of all links: totals in KiB.
_NVLINK_SENT, _NVLINK_RECEIVED, _ALL_LINKS = 138, 139, 0xFFFFFFFF
_UNSIGNED_LONG_LONG = 3

# (key of the figure, function, its argument or None, the unit of NVML's answer in ours)
_FIGURES = (
    ("temperature_celsius", "nvmlDeviceGetTemperature", _TEMPERATURE_GPU, 1),
    ("power_watts", "nvmlDeviceGetPowerUsage", None, 1e-3),
    ("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", None, 1e-3),
    ("sm_clock_hertz", "nvmlDeviceGetClockInfo", _CLOCK_SM, 1e6),
    ("memory_clock_hertz", "nvmlDeviceGetClockInfo", _CLOCK_MEMORY, 1e6),
    # Over 20 ms each.
    ("pcie_sent_bytes_per_second", "nvmlDeviceGetPcieThroughput", _PCIE_SENT, 1e3),
    ("pcie_received_bytes_per_second", "nvmlDeviceGetPcieThroughput", _PCIE_RECEIVED, 1e3),
)
_TOTALS = (
    ("nvlink_sent_bytes", _NVLINK_SENT),
    ("nvlink_received_bytes", _NVLINK_RECEIVED),
)
KEYS = (*(figure[0] for figure in _FIGURES), *(total[0] for total in _TOTALS))


class _Value(ctypes.Structure):
    """nvmlFieldValue_t, with its union as an unsigned 64-bit integer."""

    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("type", ctypes.c_uint),
        ("status", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    ]


def read(nvml: Any, device: int) -> dict[str, float]:
    """nvml: the initialised library. device: a handle. May take 40 ms, or hang with the driver."""
    handle, found = ctypes.c_void_p(device), {}
    for key, name, argument, unit in _FIGURES:
        function: Callable[..., int] | None = getattr(nvml, name, None)
        answer = ctypes.c_uint()
        words = () if argument is None else (ctypes.c_uint(argument),)
        if function and function(handle, *words, ctypes.byref(answer)) == 0:
            found[key] = answer.value * unit
    values = (_Value * len(_TOTALS))(*(_Value(field, _ALL_LINKS) for _, field in _TOTALS))
    fields: Callable[..., int] | None = getattr(nvml, "nvmlDeviceGetFieldValues", None)
    if fields and fields(handle, len(values), values) == 0:
        for (key, _), value in zip(_TOTALS, values):
            if value.status == 0 and value.type == _UNSIGNED_LONG_LONG:
                found[key] = float(value.value * 1024)
    return found
