"""Apply edits to a container that is being created: mounts, nodes and device rules, from outside.

The runtime has made the container's namespaces and mounted its root, but has not entered it: no
process of the image runs yet, but other containers may change its volumes meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import subprocess
from collections.abc import Collection, Iterator

from vcuda_oci.edits.edits import HOOK_SECONDS, Edits
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import kernel_tables

from . import device_rules, root_paths, syscalls
from .root_paths import Root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vcuda_oci.host.host import DeviceNode

    from .created_container import Container

# MOUNT_ATTR_* by the option's name. Source: mount_setattr(2).
_ATTRIBUTES = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8}
_HINT = "use the runtime wrapper instead of the hook"


def attach(
    edits: Edits, container: Container, root: str, driver_root: str, again: Collection[str] = ()
) -> None:
    """Give a container its mounts, nodes and device rules; a second call changes nothing.

    root: the container's root as its mount namespace shows it before pivot_root. driver_root: where
    the nodes are on the host. again: destinations to mount once more over the same file, because
    the engine used other options.

    Raises VcudaError; the runtime then removes the container with its mounts.
    """
    process = container.process
    inner, home = _mount_namespace(process), _mount_namespace(_open_folder("/proc/self"))
    where, hint = "container state", "let the runtime call this hook"
    if os.path.sameopenfile(inner, home):
        raise VcudaError("the process is in no mount namespace of its own", where, hint)
    if not os.path.samestat(os.stat("root", dir_fd=process), os.stat("/")):
        raise VcudaError("the container runs already", where, hint)
    mounts = [(_source(source, options), place) for source, place, options in edits.mounts]
    nodes = [(_node_mount(driver_root, node, process), node) for node in edits.devices]
    try:
        id, majors = container.state.id, edits.majors()
        device_rules.change(process, id, edits.devices, edits.denied, majors)
    except (OSError, NotImplementedError) as error:
        raise VcudaError(f"no device rule can be changed: {error}", "cgroup", _HINT) from error
    with _inside(process, inner, home, root) as inside:
        for mount, place in mounts:
            _lay(inside, place, mount, place in again)
        for host_node, node in nodes:
            _make_node(inside, node, host_node)
        for node in edits.denied:
            _remove_node(inside, node)


def change_nodes(
    process: int,
    container_id: str,
    driver_root: str,
    allowed: list[DeviceNode],
    denied: list[DeviceNode],
) -> None:
    """Give a running container device nodes, and take others; a second call changes nothing.

    process: a descriptor of /proc/<pid> of its first process. Raises VcudaError, OSError.
    """
    inner, home = _mount_namespace(process), _mount_namespace(_open_folder("/proc/self"))
    hint = "start the container on that GPU"
    if os.path.sameopenfile(inner, home):
        raise VcudaError("has the host's mount namespace", container_id, hint)
    nodes = [(_node_mount(driver_root, node, process), node) for node in allowed]
    try:
        device_rules.change(process, container_id, allowed, denied)
    except (OSError, NotImplementedError) as error:
        raise VcudaError(f"no device rule can be changed: {error}", "cgroup", hint) from error
    with _inside(process, inner, home, "/") as inside:
        for host_node, node in nodes:
            _make_node(inside, node, host_node)
        for node in denied:
            _remove_node(inside, node)


@contextlib.contextmanager
def _inside(process: int, inner: int, home: int, root: str) -> Iterator[Root]:
    """The container's root at path `root`, while this thread is in the mount namespace `inner`,
    with the file accesses of the container's root user.
    """
    # The container's root user and group as ids of the host.
    user, group = (kernel_tables.outside_id(process, name) for name in ("uid_map", "gid_map"))
    host_devices = root_paths.host_devices()
    shared = root_paths.shared_mounts(process)
    syscalls.setns(inner)
    try:
        inside = Root(_open_folder(root), host_devices, shared)
        # In a user namespace new files need an owner that the namespace maps.
        syscalls.set_file_ids(user, group)
        yield inside
    finally:
        syscalls.set_file_ids(0, 0)
        syscalls.setns(home)


def run_hooks(edits: Edits, kind: str, pid: int) -> None:
    """Run the edits' hooks of this kind, as the runtime would.

    pid: the container's first process. Raises VcudaError with the hook's output.
    """
    for command in [hook["args"] for name, hook in edits.hooks if name == kind]:
        state = json.dumps({"pid": pid})
        try:
            result = subprocess.run(
                command, env={}, input=state, capture_output=True, text=True, timeout=HOOK_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VcudaError(
                f"cannot be run: {error}", command[0], "install vcuda again"
            ) from error
        if result.returncode != 0:
            line = result.stderr.strip() or f"ended with {result.returncode}"
            raise VcudaError(line, command[0], _HINT)


def _open_folder(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _mount_namespace(process: int) -> int:
    return os.open("ns/mnt", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=process)


def _source(path: str, options: list[str]) -> int:
    """A detached mount of the host's file or folder, with these options."""
    attributes = 0
    for option in options:
        attributes |= _ATTRIBUTES.get(option, 0)
    try:
        mount = syscalls.clone_mount(path)
        syscalls.set_mount(mount, attributes)
    except OSError as error:
        raise VcudaError(f"cannot be mounted: {error.strerror}", path, _HINT) from error
    return mount


def _node_mount(driver_root: str, node: DeviceNode, process: int) -> int | None:
    """A mount of the host's node, as runc does in a user namespace, where mknod is not possible."""
    theirs, ours = os.stat("ns/user", dir_fd=process), os.stat("/proc/self/ns/user")
    if os.path.samestat(theirs, ours):
        return None
    return _source(driver_root.rstrip("/") + node.path, ["nosuid", "noexec"])


def _lay(root: Root, place: str, mount: int, again: bool = False) -> None:
    try:
        target = root.make_target(place, mount)
        # The wrapper or an earlier hook of the same container has made it.
        if again or not os.path.sameopenfile(target, mount):
            if root.is_shared(target):
                raise OSError(errno.EXDEV, "it is in a volume that shares its mounts with the host")
            syscalls.attach_mount(mount, target)
        os.close(target)
        os.close(mount)
    except OSError as error:
        raise VcudaError(
            f"nothing can be mounted here: {error.strerror}", f"{place} in the container", _HINT
        ) from error


def _make_node(root: Root, node: DeviceNode, mount: int | None) -> None:
    if mount is not None:
        _lay(root, node.path, mount)
        return
    try:
        folder = root.make_folder(os.path.dirname(node.path))
        try:
            if not _has_node(folder, node):
                root.must_own(folder)
                _make_node_in(folder, node)
        finally:
            os.close(folder)
    except OSError as error:
        raise VcudaError(
            f"no device node can be made: {error.strerror}", f"{node.path} in the container", _HINT
        ) from error


def _make_node_in(folder: int, node: DeviceNode) -> None:
    number = os.makedev(node.major, node.minor)
    before = os.umask(0)
    try:
        os.mknod(os.path.basename(node.path), 0o666 | stat.S_IFCHR, number, dir_fd=folder)
    except FileExistsError:
        if not _has_node(folder, node):
            raise
    finally:
        os.umask(before)


def _remove_node(root: Root, node: DeviceNode) -> None:
    """Remove a node that an engine made for another GPU; the device rules deny it in any case."""
    folder = root.open_path(os.path.dirname(node.path))
    if folder is None:
        return
    try:
        if root.is_own(folder) and _has_node(folder, node):
            os.unlink(os.path.basename(node.path), dir_fd=folder)
    except OSError:
        pass
    finally:
        os.close(folder)


def _has_node(folder: int, node: DeviceNode) -> bool:
    try:
        there = os.stat(os.path.basename(node.path), dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    number = os.makedev(node.major, node.minor)
    return stat.S_ISCHR(there.st_mode) and there.st_rdev == number
