"""A child process of the agent that ends as the test asks."""

from __future__ import annotations

import os
import signal
import sys

from vcuda_oci.system.settings_file import Config


def main(settings: Config, how: str) -> None:
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "heeds nothing":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how in ("waits", "heeds nothing"):
        print(os.getpid(), flush=True)
        while True:
            signal.pause()
    if how == "knows its settings":
        print(settings.placement)
        return
    print(sys.stdin.readline().strip() if how == "echoes" else "here")
    if how == "exits":
        sys.exit(3)
    if how == "complains":
        sys.exit("it: is odd")
    if how == "fails":
        raise ValueError("odd")
