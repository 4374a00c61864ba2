"""Change the device rules of an existing container, in cgroup v1 and v2."""

from __future__ import annotations

import os

from ..live import cgroup_folders
from . import device_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from vcuda_oci.host.host import DeviceNode


def change(
    process: int,
    container_id: str,
    allowed: list[DeviceNode],
    denied: list[DeviceNode],
    majors: Collection[int] = (),
) -> None:
    """Allow a container to read and write the nodes `allowed`, and deny `denied`; a second call
    changes nothing.

    process: a descriptor of /proc/<pid> of one of its processes. majors: rules for all minors of
    these are removed, because they could allow `denied`. Raises OSError: the kernel refuses, no
    hierarchy has device rules, or the rules would apply to other containers.
    """
    if not allowed and not denied:
        return
    folder, is_v2 = own_cgroup(process)
    if is_v2:
        for place in up_to_scope(folder, container_id, of_this_process()[1]):
            device_program.change(place, _numbers(allowed), _numbers(denied))
        return
    if not _allows_all(folder):
        for major in sorted(majors):
            _write(f"{folder}/devices.deny", f"c {major}:* rw")
    for name, nodes, access in (("allow", allowed, "rw"), ("deny", denied, "rwm")):
        for major, minor in _numbers(nodes):
            _write(f"{folder}/devices.{name}", f"c {major}:{minor} {access}")


def _allows_all(folder: str) -> bool:
    """Whether this cgroup v1 allows all devices, as a privileged container's does."""
    with open(f"{folder}/devices.list") as rules:
        return rules.readline().startswith("a *:* ")


def _write(path: str, rule: str) -> None:
    # One rule for each write. cgroupspy would do the same, and is not installed with the runtime
    # part.
    with open(path, "w") as rules:
        rules.write(rule)


def _numbers(nodes: list[DeviceNode]) -> list[tuple[int, int]]:
    return [(node.major, node.minor) for node in nodes]


def own_cgroup(process: int) -> tuple[str, bool]:
    """The folder of the cgroup that checks a container's devices, and whether it is of v2.

    process: as of `change`. Raises OSError: the container has no cgroup of its own, so the rules
    would be the host's or the runtime's. An ended process is in v1's root: cgroups(7),
    "/proc/pid/cgroup".
    """
    path, folder, is_v2 = device_cgroup(process)
    if ".." in path.split("/"):
        raise PermissionError(1, "the container's cgroup is outside of this cgroup namespace")
    if path == "/" or folder == of_this_process()[1]:
        raise PermissionError(1, "the container has ended, or has no cgroup of its own")
    return folder, is_v2


def of_this_process() -> tuple[str, str, bool]:
    """As `device_cgroup`."""
    process = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return device_cgroup(process)
    finally:
        os.close(process)


def up_to_scope(folder: str, container_id: str, ours: str) -> list[str]:
    """The container's cgroup, and those above it up to the systemd scope made for it, if any.

    crun runs the container in a cgroup below its scope. It gives systemd the device rules, and
    systemd attaches the device program to the scope. An access must pass the programs of both. Seen
    with crun 1.21.

    ours: the folder of this hook's cgroup; its rules, like those above it, apply to others too.
    """
    found = [folder]
    while len(above := os.path.dirname(found[-1])) > 1 and not f"{ours}/".startswith(f"{above}/"):
        found.append(above)
        if above.endswith(f"-{container_id}.scope"):
            return found
    return [folder]


def device_cgroup(process: int) -> tuple[str, str, bool]:
    """The cgroup that checks a process's devices, its folder, and whether it is of v2.

    process: a descriptor of its /proc/<pid>. Raises FileNotFoundError: no hierarchy has device
    rules.
    """
    for controllers, path, folder in cgroup_folders.of(process):
        if "devices" in controllers or not controllers:
            return path, folder, not controllers
    raise FileNotFoundError(2, "the process is in no cgroup with device rules")
