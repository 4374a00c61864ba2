"""The cgroups of a process as folders of this host, in cgroup v1, v2 and hybrid mounts."""

from __future__ import annotations

import os

from vcuda_oci.system import kernel_tables


def of(process: int) -> list[tuple[list[str], str, str]]:
    """Each hierarchy's controllers (none for v2), the process's cgroup in it, and that cgroup's
    folder.

    process: a descriptor of its /proc/<pid>. Hierarchies without a mount are omitted: the kernel
    may have v1's on a host that uses v2. Raises OSError.
    """
    found = []
    for _, names, path in kernel_tables.cgroups(process):
        controllers = names.split(",") if names else []
        folder = mounted(controllers[0] if controllers else "", path)
        if folder:
            found.append((controllers, path, folder))
    return found


def join(process: int) -> None:
    """Move the caller into the cgroups of another process. Raises OSError: it has ended."""
    for _, _, folder in of(process):
        try:
            with open(folder + "/cgroup.procs", "w") as members:
                members.write("0")
        except OSError:
            pass  # mounted read-only: the caller stays in its cgroup


def mounted(controller: str, path: str) -> str:
    """The folder of the hierarchy's cgroup `path`; "": not mounted.

    A mount may show only a part of the hierarchy.
    """
    for mount in kernel_tables.mounts():
        if mount.kind != ("cgroup" if controller else "cgroup2"):
            continue
        if controller and controller not in mount.options:
            continue
        root = mount.root.rstrip("/")
        if path == mount.root or path.startswith(root + "/"):
            folder = mount.point + path[len(root) :]
            if os.path.isdir(folder):
                return folder
    return ""
