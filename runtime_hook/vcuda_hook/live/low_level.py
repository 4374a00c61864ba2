"""The low-level runtime, runc or crun, found as the launcher does in `handover/exec.c`."""

from __future__ import annotations

import shutil
import subprocess

_VERSION_SECONDS = 30  # a broken program may say nothing and not end
# CRI-O's packages install their runtimes in the last of these folders.
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/libexec/crio"


def find(name: str) -> str | None:
    """The full path of the runtime `name`, a name or a path; None: not on this host.

    "runc", the default, means crun on a host that has only crun.
    """
    alternatives = (name, "crun") if name == "runc" else (name,)
    for each in alternatives:
        found = shutil.which(each) or shutil.which(each, path=_DEFAULT_PATH)
        if found:
            return found
    return None


def version(path: str) -> str:
    """The first line of its --version; "": it is not a program, or says nothing."""
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_VERSION_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").partition("\n")[0]
