"""Device rules of a container that exists already, in cgroup v1 and v2."""

from __future__ import annotations

import os

from . import device_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vcuda_oci.host import DeviceNode


def change(process: int, granted: list[DeviceNode], denied: list[DeviceNode]) -> None:
    """Let a container read and write the nodes `granted`, and not `denied`; twice is once.

    process: a descriptor of /proc/<pid> of one of its processes. Raises OSError: the kernel
    refuses, or no hierarchy has device rules.
    """
    if not granted and not denied:
        return
    folder, is_v2 = device_cgroup(process)
    if is_v2:
        device_program.change(folder, _numbers(granted), _numbers(denied))
        return
    for name, nodes, access in (("allow", granted, "rw"), ("deny", denied, "rwm")):
        for major, minor in _numbers(nodes):
            # One rule a write. cgroupspy would do no more, and is not where the runtime part runs.
            with open(f"{folder}/devices.{name}", "w") as rules:
                rules.write(f"c {major}:{minor} {access}")


def _numbers(nodes: list[DeviceNode]) -> list[tuple[int, int]]:
    return [(node.major, node.minor) for node in nodes]


def device_cgroup(process: int) -> tuple[str, bool]:
    """The folder of the cgroup that judges the process's devices, and whether it is of v2.

    process: as of `change`. Raises FileNotFoundError: no hierarchy has device rules. Source:
    cgroups(7), "/proc/pid/cgroup": hierarchy:controllers:path.
    """
    with open(os.open("cgroup", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)) as lines:
        groups = [line.rstrip("\n").split(":", 2) for line in lines]
    for number, controllers, path in groups:
        if "devices" in controllers.split(","):
            # The kernel may have the hierarchy while this host goes by v2: then nobody mounted it.
            if folder := _mounted("devices", path):
                return folder, False
        elif number == "0" and not controllers and (folder := _mounted("", path)):
            return folder, True
    raise FileNotFoundError(2, "the process is in no cgroup with device rules")


def _mounted(controller: str, path: str) -> str:
    """Where the cgroup `path` of a hierarchy is in the file system; "": nowhere.

    A mount may show a part of the hierarchy only. Source: proc(5), /proc/pid/mountinfo.
    """
    with open("/proc/self/mountinfo") as mounts:
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
