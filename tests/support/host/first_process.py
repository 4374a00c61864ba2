"""Make a script process 1 of new namespaces, which end with the test that started it.

namespaces.py runs the script as `python -I -S SCRIPT …`. The script prints the pid of process 1 as
the host sees it, then `ready`. When the test process dies, by whatever signal, the kernel kills
process 1, and with it every process in the namespaces.
"""

import ctypes
import os
import signal
import subprocess
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def unshare(flags: int) -> None:
    if libc.unshare(flags):
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")


def become() -> None:
    """Return as process 1 of new mount, pid and network namespaces; no other process returns."""
    parent = os.getppid()
    _die_with_parent()
    if os.getppid() != parent:
        sys.exit("the test process is gone")
    # Without a handler the kernel may drop it while it is not waited for.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET)
    child = os.fork()
    if child:
        print(child, flush=True)
        # Only the child prints `ready`: if it dies before, the reader must see the end of file.
        os.close(1)
        os.waitpid(child, 0)
        sys.exit()
    _die_with_parent()
    mount("--make-rprivate", "/")


def say_ready() -> None:
    print("ready", flush=True)


def next_orphan() -> tuple[int, int]:
    """Wait without a limit for a child to end; return its pid and status."""
    while True:
        try:
            return os.wait()
        except ChildProcessError:
            # No child yet: wait for SIGCHLD of a later orphan.
            signal.sigwait([signal.SIGCHLD])


def _die_with_parent() -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
