"""``NVIDIA_DRIVER_CAPABILITIES``: which parts of the driver a container asks for."""

from __future__ import annotations

from . import names
from .errors import VcudaError

COMPUTE, UTILITY, GRAPHICS, VIDEO = "compute", "utility", "graphics", "video"
DISPLAY, NGX, COMPAT32 = "display", "ngx", "compat32"
ALL = (COMPUTE, UTILITY, GRAPHICS, VIDEO, DISPLAY, NGX, COMPAT32)
DEFAULT = (UTILITY, COMPUTE)

_WHERE = f"env {names.NVIDIA_DRIVER_CAPABILITIES}"


def requested(value: str, allowed: list[str]) -> frozenset[str]:
    """The capabilities that the variable's value asks for. allowed: by the settings.

    Empty or unset: those of the default that are allowed. "all": all that are allowed. Raises
    VcudaError: an unknown capability, or one that is not allowed. Source: NVIDIA's container
    toolkit, "Driver Capabilities".
    """
    words = [word.strip() for word in value.split(",") if word.strip()]
    if not words:
        return frozenset(DEFAULT) & frozenset(allowed)
    for word in words:
        if word != "all" and word not in ALL:
            raise VcudaError(f"unknown capability '{word}'", _WHERE, f"use all or {', '.join(ALL)}")
    if "all" in words:
        return frozenset(allowed)
    for word in words:
        if word not in allowed:
            raise VcudaError(
                f"capability '{word}' is not offered here",
                _WHERE,
                f"use {', '.join(allowed) or 'none'}, or add it to driver-capabilities",
            )
    return frozenset(words)
