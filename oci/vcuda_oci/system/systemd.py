"""Notify systemd of a service's state."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Send READY=1, WATCHDOG=1 or another state; nothing if systemd did not start this process.

    Source: sd_notify(3), "Notes".
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(0)  # a busy systemd must not block the service
        try:
            datagrams.connect(address.replace("@", "\0", 1))
            datagrams.send(state.encode())
        except OSError:
            pass  # systemd restarts, or is busy


def watchdog_seconds() -> float:
    """How long systemd waits for a WATCHDOG=1 of this process; 0: the watchdog is off.

    Source: sd_watchdog_enabled(3).
    """
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    pid = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    return int(microseconds) / 1e6 if microseconds.isdigit() and pid == str(os.getpid()) else 0.0
