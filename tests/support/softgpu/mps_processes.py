"""The MPS daemons and servers of one state folder."""

from __future__ import annotations

import contextlib
import os
import signal


def daemons(state_dir: str) -> list[int]:
    """Pids of live control daemons and servers with a pipe directory below `state_dir`."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={state_dir}/mps/".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as command:
                words = command.read().split(b"\0")
            with open(f"/proc/{name}/environ", "rb") as file:
                is_ours = wanted in file.read()
        except OSError:
            continue
        # Without -f the control program only asks a daemon.
        serves = words[0].endswith(b"-server") or b"-f" in words
        if is_ours and serves and b"nvidia-cuda-mps" in words[0]:
            found.append(int(name))
    return sorted(found)


def kill_daemons(state_dir: str) -> list[int]:
    """Kill them all at once; return their pids."""
    found = daemons(state_dir)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found
