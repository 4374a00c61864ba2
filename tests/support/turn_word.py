"""A container's turn, written into its limits page in the turn keeper's place."""

from __future__ import annotations

import struct
import time

from support.guest import Guest
from vcuda_oci.pages import layout

NONE, WAIT, HELD = 0, 2, 3
_HOUR_NS = 3_600_000_000_000
_LEASE_NS = 5_000_000_000


def write_turn(guest: Guest, state: int) -> None:
    """For the first GPU; a turn begins now and lasts an hour."""
    at = {name: at for name, at, _ in layout.offsets()}
    now_ns = time.monotonic_ns()
    with open(guest.limits, "r+b", 0) as page:
        for field, value in (
            ("turn", struct.pack("=I", 1 << 2 | state)),
            ("turn_until_ns", struct.pack("=Q", now_ns + _HOUR_NS)),
            ("turn_lease_ns", struct.pack("=Q", now_ns + _LEASE_NS)),
        ):
            page.seek(at["limits.gpu"] + at[f"limits_gpu.{field}"])
            page.write(value)
