"""The cgroups of a process as folders of this host, in v1, v2 and both at once."""

from __future__ import annotations

import os


def of(process: int) -> list[tuple[list[str], str, str]]:
    """Each hierarchy's controllers, none for v2, the process's cgroup in it, and that one's folder.

    process: a descriptor of its /proc/<pid>. A hierarchy that nobody mounted is left out: the
    kernel may have v1's while this host goes by v2.
    Raises OSError. Source: cgroups(7), "/proc/pid/cgroup": hierarchy:controllers:path.
    """
    found = []
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open("cgroup", flags, dir_fd=process)) as lines:
        groups = [line.rstrip("\n").split(":", 2) for line in lines]
    for _, names, path in groups:
        controllers = names.split(",") if names else []
        folder = mounted(controllers[0] if controllers else "", path)
        if folder:
            found.append((controllers, path, folder))
    return found


def join(process: int) -> None:
    """Move the caller into the cgroups of another process. Raises OSError: that one is gone."""
    for _, _, folder in of(process):
        try:
            with open(folder + "/cgroup.procs", "w") as members:
                members.write("0")
        except OSError:
            pass  # mounted read-only: the caller stays in this one, and under its limits


def mounted(controller: str, path: str) -> str:
    """Where the cgroup `path` of a hierarchy is in the file system; "": nowhere.

    A mount may show a part of the hierarchy only. Source: proc(5), /proc/pid/mountinfo.
    """
    with open("/proc/self/mountinfo", errors="surrogateescape") as mounts:
        for line in mounts:
            before, _, after = line.rstrip("\n").partition(" - ")
            root, point = before.split()[3:5]
            kind, _, options = after.split(" ", 2)
            if kind != ("cgroup" if controller else "cgroup2"):
                continue
            if controller and controller not in options.split()[-1].split(","):
                continue
            if path == root or path.startswith(root.rstrip("/") + "/"):
                folder = point + path[len(root.rstrip("/")) :]
                if os.path.isdir(folder):
                    return folder
    return ""
