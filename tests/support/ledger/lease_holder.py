"""Processes that hold leases and locks on files, and retain them or take them again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

# The kernel announces a lease break by SIGIO, which is ignored. The locks are taken from the end of
# the file to its beginning, which is the order that the kernel inserts fastest. 37 is F_OFD_SETLK.
_HOLD = """
import fcntl, os, signal, struct, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
what, path, count, user = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if what == "flock all":
    os.chdir(path)
if user:
    os.setgroups([])
    os.setresuid(user, user, user)
if what == "write lease":
    fcntl.fcntl(os.open(path, os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
elif what == "read lease":
    fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
elif what.endswith(" lease anew"):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
    kind, flags = (fcntl.F_WRLCK, os.O_RDWR) if "write" in what else (fcntl.F_RDLCK, os.O_RDONLY)
    fd = os.open(path, flags)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, kind)
    print("held", flush=True)
    while True:
        signal.sigwait([signal.SIGIO])
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        tries = 0
        while True:
            try:
                fcntl.fcntl(fd, fcntl.F_SETLEASE, kind)
                break
            except BlockingIOError:
                tries += 1
                if tries > 1000:
                    time.sleep(0.001)
elif what == "flock":
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)
elif what == "flock all":
    for folder, _, files in os.walk("."):
        for name in (".", *files):
            try:
                fd = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
elif what == "locks":
    fd = os.open(path, os.O_RDWR)
    for at in range(count, 0, -1):
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * at + (1 << 40), 1, 0)
        fcntl.fcntl(fd, 37, lock)
print("held", flush=True)
signal.pause()
"""


@contextlib.contextmanager
def holding(what: str, path: str, count: int = 0, user: int = 0) -> Iterator[int]:
    """what: "write lease", "read lease", "flock", "flock all": of a folder's files and folders that
    the user can open, or "locks": `count` of them, far behind the end. "write lease anew", "read
    lease anew": given up as soon as another process opens the file, and taken again.

    user: which one holds it; 0 is root, as in a container. The holder's pid.
    """
    command = [sys.executable, "-ISc", _HOLD, what, path, str(count), str(user)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        try:
            yield holder.pid
        finally:
            holder.kill()
