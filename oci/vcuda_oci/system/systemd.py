"""What a service tells systemd of itself."""

from __future__ import annotations

import os
import socket


def tell(state: str) -> None:
    """READY=1, WATCHDOG=1 and their like; nothing where systemd did not start this process.

    Source: sd_notify(3), "Notes".
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        # A systemd that does not read must not hold up who has other things to do.
        notify.setblocking(False)
        try:
            notify.connect(address.replace("@", "\0", 1))
            notify.send(state.encode())
        except OSError:
            pass  # it is starting anew, or busy


def watchdog_seconds() -> float:
    """How long systemd waits for a WATCHDOG=1 of this process; 0: it waits for none.

    Source: sd_watchdog_enabled(3).
    """
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    pid = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    return int(microseconds) / 1e6 if microseconds.isdigit() and pid == str(os.getpid()) else 0.0
