"""From an allocation and the host's facts to what changes in ``config.json``, in CDI's words."""

from __future__ import annotations

from ..host import device_nodes, driver_files
from ..model import capabilities, jsontree, names
from ..model.errors import VcudaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from ..host.host import DeviceNode, Host
    from ..model.allocation import Allocation

READ_ONLY = ["bind", "rprivate", "nosuid", "nodev", "ro"]
READ_WRITE = ["bind", "rprivate", "nosuid", "nodev", "noexec"]
SHIMMED = tuple(names.PRIVATE_DRIVER)
# Where 32-bit programs look, by where the others do.
_32_BIT_FOLDER = {
    "/usr/lib/x86_64-linux-gnu": "/usr/lib/i386-linux-gnu",
    "/lib/x86_64-linux-gnu": "/lib/i386-linux-gnu",
    "/usr/lib64": "/usr/lib",
    "/lib64": "/usr/lib",
    "/usr/lib": "/usr/lib32",
}
HOOK_ENV = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
HOOK_SECONDS = 30
# Files of the host that crun makes for what hooks write, where a container has any. With Podman an
# image may name them.
CRUN_OUTPUT = ("run.oci.hooks.stdout", "run.oci.hooks.stderr")
_MEND = "mend it as the OCI spec says"


class Paths:
    """Where the host keeps what the container gets beside the driver.

    shim: libvcuda's file. pages: the folder with `limits` and `usage`. hook: the command of the
    poststop hook, by full path; empty where none is needed. extra_mounts: (source, destination)
    pairs of the settings. procfs_hook: the command that shows the container its
    /proc/driver/nvidia; empty where the kernel has none.
    """

    def __init__(
        self,
        shim: str,
        pages: str,
        hook: list[str],
        extra_mounts: list[list[str]],
        procfs_hook: list[str] | None = None,
    ) -> None:
        self.shim, self.pages, self.hook, self.extra_mounts = shim, pages, hook, extra_mounts
        self.procfs_hook = procfs_hook or []


class Edits:
    """Device nodes, mounts (source, destination, options) and hooks (by name: OCI hook objects).

    not_granted: the nodes of the host's other GPUs, which an earlier edit of the same bundle, or an
    engine that gives every GPU, may have left there.
    """

    def __init__(self) -> None:
        self.devices: list[DeviceNode] = []
        self.not_granted: list[DeviceNode] = []
        self.mounts: list[tuple[str, str, list[str]]] = []
        self.hooks: list[tuple[str, dict[str, Any]]] = []

    def majors(self) -> set[int]:
        """Those under which a GPU that was not granted has a node, or could get one."""
        gpus = [node for node in self.devices if device_nodes.is_gpu(node.path)]
        return {node.major for node in [*self.not_granted, *gpus]}


def edits_for(
    allocation: Allocation,
    host: Host,
    paths: Paths,
    library_folder: str,
    asked: Collection[str] = capabilities.DEFAULT,
    image_libraries: Mapping[str, str] | None = None,
) -> Edits:
    """Edits that give one container its share of each GPU.

    library_folder: where the container's loader looks, as the container sees it. asked: the driver
    capabilities. image_libraries: paths inside where the image has libraries of a driver, and the
    names that they stand for; this host's are mounted over them.

    Raises VcudaError: a GPU of the allocation has no device node. Source: runtime-spec
    config-linux.md, "Devices", "Allowed Device list".
    """
    edits = Edits()
    _add_devices(edits, allocation, host, asked)
    mounts: dict[str, str] = {}
    for name, source in host.libraries.items():
        if name.startswith(SHIMMED):
            source = paths.shim
        if driver_files.is_wanted(name, asked):
            mounts[f"{library_folder}/{name}"] = source
    mounts.update(over_the_images(image_libraries or {}, host, paths.shim))
    for name, source in host.libraries_32_bit.items():
        folder = _32_BIT_FOLDER.get(library_folder)
        if folder and driver_files.is_wanted_32_bit(name, asked):
            mounts[f"{folder}/{name}"] = source
    for path, source in host.files.items():
        if driver_files.is_wanted_file(path, asked):
            mounts[path] = source
    for shimmed, private in names.PRIVATE_DRIVER.items():
        name = shimmed + ".1"
        if name in host.libraries:
            mounts[f"{names.GUEST_DRIVER}/{private}"] = host.libraries[name]
    edits.mounts = [(mounts[path], path, READ_ONLY) for path in sorted(mounts)]
    add = edits.mounts.append
    for path in host.services:
        if driver_files.is_wanted_service(path, asked):
            add((host.root + path, path, READ_WRITE))
    extra = [destination for _, destination in paths.extra_mounts]
    if host.software_state and names.SOFTWARE_GPU_STATE not in extra:
        add((host.software_state, names.SOFTWARE_GPU_STATE, READ_WRITE))
    for source, destination in paths.extra_mounts:
        add((source, destination, READ_WRITE))
    add((paths.pages + "/limits", names.GUEST_LIMITS, [*READ_ONLY, "noexec"]))
    add((paths.pages + "/usage", names.GUEST_USAGE, READ_WRITE))
    if paths.hook:
        edits.hooks.append(("poststop", as_hook([*paths.hook, allocation.id])))
    if paths.procfs_hook:
        edits.hooks.append(procfs_hook(paths))
    return edits


def _add_devices(edits: Edits, allocation: Allocation, host: Host, asked: Collection[str]) -> None:
    granted = []
    for share in allocation.shares:
        gpu = host.gpu(share.uuid)
        node = host.nodes.get(f"nvidia{gpu.minor}") if gpu else None
        if node is None:
            raise VcudaError(
                f"allocation {allocation.id} names {share.uuid}, which has no device node",
                f"{host.root}/dev/nvidia*",
                "run 'nvidia-modprobe -c 0 -u' and create the container again",
            )
        if node not in edits.devices:  # of a MIG device it is its GPU's
            edits.devices.append(node)
        own = host.gpu_nodes.get(share.uuid, [])
        granted += own
        access = device_nodes.access_files(host.root + device_nodes.KERNEL, gpu) if gpu else []
        if access and len([name for name in own if name in host.nodes]) < len(access):
            raise VcudaError(
                f"allocation {allocation.id} names {share.uuid}, whose capabilities have no nodes",
                f"{host.root}/dev/nvidia-caps",
                f"run 'nvidia-modprobe -f {' -f '.join(access)}' and create the container again",
            )
    of_gpus = {name for owned in host.gpu_nodes.values() for name in owned}
    for name, node in host.nodes.items():
        is_gpu = name.startswith("nvidia") and name[len("nvidia") :].isdigit()
        mine = node in edits.devices if is_gpu else name not in of_gpus or name in granted
        if not mine:
            edits.not_granted.append(node)
        elif not is_gpu and device_nodes.is_wanted(name, asked):
            edits.devices.append(node)


def procfs_hook(paths: Paths) -> tuple[str, dict[str, Any]]:
    """The hook, and when it runs: the container's /proc is mounted then, and its root not entered.

    A bind mount in config.json would do, but runc refuses those below /proc.
    """
    return "createRuntime", as_hook(paths.procfs_hook)


def over_the_images(libraries: Mapping[str, str], host: Host, shim: str) -> dict[str, str]:
    """What is mounted where the image has libraries of a driver, by path inside."""
    return {
        path: shim if name.startswith(SHIMMED) else host.libraries[name]
        for path, name in libraries.items()
    }


def as_hook(command: list[str]) -> dict[str, Any]:
    # An env of its own: runc gives a hook without one the image's, LD_PRELOAD included.
    return {"path": command[0], "args": command, "env": HOOK_ENV, "timeout": HOOK_SECONDS}


def apply(spec: Mapping[str, Any], edits: Edits) -> dict[str, Any]:
    """An edited copy of `spec`, which stays as it was; what we do not know survives, and applying
    twice is once. Copied is what changes, and what that is in; the rest both have in common.

    Raises VcudaError: a part of the spec that must change is not of the kind OCI says.
    """
    edited = dict(spec)
    linux = _child(edited, "linux", {})
    devices = _child(linux, "devices", [])
    rules = _child(_child(linux, "resources", {}), "devices", [])
    for node in edits.not_granted:
        devices[:] = [item for item in devices if not _is_node(item, node)]
        rules[:] = [rule for rule in rules if not _allows(rule, node)]
    majors = edits.majors()
    rules[:] = [_narrowed(rule) if is_wide(rule, majors) else rule for rule in rules]
    for node in edits.devices:
        _replace(devices, _as_device(node), "path")
        rule = _as_rule(node)
        if rule in rules:
            rules.remove(rule)
        rules.append(rule)  # the last rule that matches decides
    added: dict[str, Any] = {}
    for source, destination, options in edits.mounts:
        added.pop(destination, None)  # the last mount on a place wins
        added[destination] = {
            "destination": destination,
            "type": "bind",
            "source": source,
            "options": list(options),
        }
    mounts = _child(edited, "mounts", [])
    mounts[:] = [item for item in mounts if not _stands_in(item, added)]
    mounts += added.values()
    annotations = edited.get("annotations")
    if edits.hooks and isinstance(annotations, dict):
        kept = {key: value for key, value in annotations.items() if key not in CRUN_OUTPUT}
        edited["annotations"] = kept
    for kind, hook in edits.hooks:
        hooks = _child(_child(edited, "hooks", {}), kind, [])
        _replace(hooks, jsontree.copy(hook), "args")
        hooks.insert(0, hooks.pop())  # one that fails keeps those behind it from running
    return edited


def _child(parent: dict[str, Any], key: str, empty: Any) -> Any:
    """A copy of the child `key` in its place, made where it is missing or null."""
    child = parent.get(key)
    if child is None:
        child = empty
    if type(child) is not type(empty):
        kind = "a list" if isinstance(empty, list) else "an object"
        raise VcudaError(f"'{key}' is not {kind}", "config.json", _MEND)
    parent[key] = child.copy()
    return parent[key]


def _replace(items: list[Any], new: dict[str, Any], key: str) -> None:
    """Put `new` last, in place of what has the same `key`."""
    items[:] = [i for i in items if not (isinstance(i, dict) and i.get(key) == new[key])]
    items.append(new)


def _stands_in(mount: Any, places: Collection[str]) -> bool:
    place = mount.get("destination") if isinstance(mount, dict) else None
    return isinstance(place, str) and place in places


def _is_node(item: Any, node: DeviceNode) -> bool:
    """Whether a device or a rule of the spec is about exactly this node."""
    number = (node.major, node.minor)
    if not isinstance(item, dict) or item.get("type") not in ("c", "u"):
        return False
    return (item.get("major"), item.get("minor")) == number


def _allows(rule: Any, node: DeviceNode) -> bool:
    return _is_node(rule, node) and rule.get("allow") is True


def is_wide(rule: Any, majors: Collection[int]) -> bool:
    """Whether it lets every device of one of these majors be opened, as `--device-cgroup-rule`'s
    'c 195:* rwm' does. A rule for all majors is a privileged container's, and not meant."""
    if not isinstance(rule, dict) or rule.get("allow") is not True:
        return False
    if rule.get("type") not in ("c", "u", "a", None) or rule.get("minor") not in (None, -1):
        return False
    access = rule.get("access")
    opens = not isinstance(access, str) or "r" in access or "w" in access
    return opens and type(rule.get("major")) is int and rule["major"] in majors


def _narrowed(rule: dict[str, Any]) -> dict[str, Any]:
    """To make nodes and open none. cgroup v1 knows no exceptions from a rule, so it has to go."""
    return {**rule, "access": "m"}


def _as_device(node: DeviceNode) -> dict[str, Any]:
    return {
        "path": node.path,
        "type": "c",
        "major": node.major,
        "minor": node.minor,
        "fileMode": 0o666,
        "uid": 0,
        "gid": 0,
    }


def _as_rule(node: DeviceNode) -> dict[str, Any]:
    return {"allow": True, "type": "c", "major": node.major, "minor": node.minor, "access": "rw"}
