"""Device rules of a container that exists already, in cgroup v1 and v2."""

from __future__ import annotations

from . import cgroup_folders, device_program

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

    process: as of `change`. Raises FileNotFoundError: no hierarchy has device rules.
    """
    for controllers, folder in cgroup_folders.of(process):
        if "devices" in controllers or not controllers:
            return folder, not controllers
    raise FileNotFoundError(2, "the process is in no cgroup with device rules")
