"""A container's turn, written into its limits page in the turn keeper's place."""

from __future__ import annotations

import struct
import time

from support.gpu.guest import Guest
from vcuda_oci.pages import layout

NONE, WAIT, HELD = 0, 2, 3
_HOUR_NS = 3_600_000_000_000


def write_turn(guest: Guest, state: int, lease_s: float = 5) -> None:
    """For the first GPU; a turn begins now and lasts an hour. lease_s: from now on."""
    at = {name: at for name, at, _ in layout.offsets()}
    now_ns = time.monotonic_ns()
    with open(guest.limits, "r+b", 0) as page:
        for field, value in (
            ("turn", struct.pack("=I", 1 << 2 | state)),
            ("turn_until_ns", struct.pack("=Q", now_ns + _HOUR_NS)),
            ("turn_lease_ns", struct.pack("=Q", now_ns + int(lease_s * 1e9))),
        ):
            page.seek(at["limits.gpu"] + at[f"limits_gpu.{field}"])
            page.write(value)
