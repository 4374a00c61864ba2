"""Name the files and cgroups of one test run, and remove those of killed runs.

Each name contains the run's name, and the run holds a lock on `/tmp/vcuda-it.RUN.lock` while its
process lives. A process id would not identify a run: another pid namespace uses the same ids. A
cgroup of a run without a lock file is not removed: the run may have a /tmp of its own.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import shutil
import tempfile

from support.host import cgroups

# Short, because a unix socket's path has at most 107 characters, and containerd adds its own.
PREFIX = "vcuda-it."
_LOCK = ".lock"
_FOLDER = "/tmp"

_name = ""


def name() -> str:
    """The name of this process's run; the first call chooses and locks it."""
    global _name
    while not _name:
        run = secrets.token_hex(3)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(_lock_of(run), flags, 0o600)  # open until this process ends
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:  # else a sweep removed the file before it was locked
            _name = run
            atexit.register(_end, os.getpid())
    return _name


def _end(owner: int) -> None:
    # Only in the run's own process, not in a forked child. A sweep needs the lock file to find
    # folders that the run left.
    if os.getpid() == owner and not _folders_of(_name):
        _unlink(_lock_of(_name))


def scratch_folder() -> str:
    """Make a folder; `sweep` removes it if this run ends without removing it."""
    folder = tempfile.mkdtemp(prefix=f"{PREFIX}{name()}.", dir=_FOLDER)
    os.chmod(folder, 0o755)
    return folder


def cgroup_name(which: str) -> str:
    """A name for a top-level cgroup of this run."""
    return f"{_cgroups_of(name())}{which}"


def sweep() -> None:
    """Remove the folders, cgroups and locks of runs that have ended."""
    names = [entry[len(PREFIX) :] for entry in os.listdir(_FOLDER) if entry.startswith(PREFIX)]
    for run in {entry.partition(".")[0] for entry in names}:
        try:
            fd = os.open(_lock_of(run), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(run)
        except BlockingIOError:
            continue
        finally:
            os.close(fd)


def _remove(run: str) -> None:
    for folder in _folders_of(run):
        shutil.rmtree(folder, ignore_errors=True)
    for group in cgroups.named(_cgroups_of(run)):
        cgroups.remove("/" + group)
    # While the kernel still unmounts, the folders are busy; the next sweep removes them.
    if not _folders_of(run):
        _unlink(_lock_of(run))


def _folders_of(run: str) -> list[str]:
    entries = [entry for entry in os.listdir(_FOLDER) if entry.startswith(f"{PREFIX}{run}.")]
    return [os.path.join(_FOLDER, entry) for entry in entries if not entry.endswith(_LOCK)]


def _unlink(lock: str) -> None:
    try:
        os.unlink(lock)
    except FileNotFoundError:
        pass  # another sweep at the same moment


def _lock_of(run: str) -> str:
    return f"{_FOLDER}/{PREFIX}{run}{_LOCK}"


def _cgroups_of(run: str) -> str:
    return f"{PREFIX.replace('.', '-')}{run}-"
