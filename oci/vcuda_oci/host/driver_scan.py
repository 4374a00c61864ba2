"""Find the driver's files below a driver root, by the loader's cache and by the usual folders.

Debian has libraries in multiarch folders, for its own packages behind /etc/alternatives. Red Hat's
family has them in /usr/lib64, 32-bit ones in /usr/lib. A driver in a container has one of these
layouts below its root. Libraries for other architectures are skipped.
"""

from __future__ import annotations

import os

from ..model.errors import VcudaError
from ..system import files, ldcache, machine
from . import device_nodes, driver_files, facts_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Searched after Debian's multiarch folder.
_LIBRARY_FOLDERS = (
    "/usr/lib64",
    "/usr/lib",
    "/lib64",  # in a root that has only a driver
)
_LD_SO_CACHE = "/etc/ld.so.cache"
_ELF_32 = b"\x7fELF\x01"
_KERNEL_VERSION = "/proc/driver/nvidia/version"


class DriverFiles:
    """The result of the scan; all files are paths on the host with symlinks resolved.

    folder: libcuda's. libraries and libraries_32_bit: by name below the loader's folder. files: by
    path in the container. looked_in: the folders and files that the result depends on.
    """

    def __init__(self, root: str, version: str, folder: str) -> None:
        self.root, self.version, self.folder = root, version, folder
        self.libraries: dict[str, str] = {}
        self.libraries_32_bit: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.looked_in: list[str] = []

    def as_json(self) -> dict[str, Any]:
        """The result for the cache, with its key."""
        content = {name: value for name, value in self.__dict__.items() if name != "root"}
        return {**content, "key": facts_cache.files_key(self.root, content)}


def find(root: str) -> DriverFiles:
    """Scan `root`. Raises VcudaError: no driver there."""
    try:
        cache = files.read(root + _LD_SO_CACHE, follow=True)
    except OSError:
        cache = b""
    native = (ldcache.NATIVE[machine.THIS.name],)
    cached = list(ldcache.entries(cache, driver_files.PREFIXES, native))
    link, final = _libcuda(root, [path for name, path in cached if name == "libcuda.so.1"])
    found = DriverFiles(root, _version_of(final), root + os.path.dirname(final))
    looked_in = [_LD_SO_CACHE, os.path.dirname(link), os.path.dirname(final), "/etc/alternatives"]
    for folder in dict.fromkeys((os.path.dirname(final), os.path.dirname(link))):
        _add_libraries(found.libraries, root, folder, found.version)
        for plugins in driver_files.PLUGIN_FOLDERS:
            looked_in.append(f"{folder}/{plugins}")
            _add_libraries(found.libraries, root, folder, found.version, plugins + "/")
    for name, path in cached:
        _add_library(found.libraries, name, root, path, found.version)
    for name, meant in driver_files.ALSO_NAMED.items():
        if meant in found.libraries:
            found.libraries[name] = found.libraries[meant]
    if machine.THIS.folders_32_bit:
        cached = list(ldcache.entries(cache, driver_files.PREFIXES, (ldcache.I386,)))
        looked_in += _add_32_bit(found, [os.path.dirname(path) for _, path in cached])
    looked_in += _add_others(found)
    found.looked_in = list(dict.fromkeys(_stamped(root + path) for path in looked_in))
    return found


def _stamped(path: str) -> str:
    """The path that shows by its stamp when `path` is made, changed or removed.

    For a missing one, the nearest folder above it that exists: most missing ones share it, and each
    start checks the stamps. A dangling link stays, because its target is made elsewhere.
    """
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def kernel_version(root: str) -> str:
    """The version of the kernel driver; "": unknown."""
    words = files.text(root + _KERNEL_VERSION).partition("\n")[0].split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "")


def _libcuda(root: str, cached: list[str]) -> tuple[str, str]:
    """The path of libcuda.so.1, and of the versioned file that it leads to.

    Prefers the one with the kernel driver's version, else returns the first.
    """
    kernel = kernel_version(root)
    folders = [*map(os.path.dirname, cached), machine.THIS.multiarch, *_LIBRARY_FOLDERS]
    candidates = [f"{folder}/libcuda.so.1" for folder in folders]
    if kernel:
        candidates += [f"{folder}/libcuda.so.{kernel}" for folder in folders]
    there = []
    for path in candidates:
        last = final(root, path)
        # A driver's version has a dot; "1" would be the soname's number.
        if "." in _version_of(last) and os.path.isfile(root + last):
            there.append((path, last))
    same = [(path, last) for path, last in there if _version_of(last) == kernel]
    if there:
        return (same or there)[0]
    raise VcudaError(
        "no NVIDIA driver: libcuda.so.1 is in no library folder",
        root or "/",
        "install the driver, or set driver-root in config.toml to the folder that holds it",
    )


def _version_of(path: str) -> str:
    return os.path.basename(path).partition(".so.")[2]


def final(root: str, path: str) -> str:
    """The target of the symlinks at `path`, where `root` is the root of absolute ones; "": a loop.

    Debian's own packages have links over /etc/alternatives to the driver's folder.
    """
    for _ in range(40):  # as many as the kernel follows
        try:
            target = os.readlink(root + path)
        except OSError:
            return path
        except ValueError:
            return ""  # a NUL in it
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return ""


def _add_libraries(
    found: dict[str, str], root: str, folder: str, version: str, below: str = ""
) -> None:
    for name in sorted(device_nodes.listed(f"{root}{folder}/{below}")):
        if ".so" in name:
            _add_library(found, below + name, root, f"{folder}/{below}{name}", version)


def _add_library(found: dict[str, str], name: str, root: str, path: str, version: str) -> None:
    """Add a library of the driver's version, or a link to one; a name's first file stays."""
    if ".so." not in name or name in found:
        return
    last = final(root, path)
    own_version = name in driver_files.OWN_VERSION
    if (last.endswith(".so." + version) or own_version) and os.path.isfile(root + last):
        found[name] = root + last


def _add_32_bit(found: DriverFiles, folders: list[str]) -> list[str]:
    """Add the 32-bit libraries; return the folders that were searched."""
    folders = list(dict.fromkeys((*folders, *machine.THIS.folders_32_bit)))
    for folder in folders:
        there: dict[str, str] = {}
        _add_libraries(there, found.root, folder, found.version)
        _add_libraries(there, found.root, folder, found.version, "vdpau/")
        for name, path in there.items():
            # /usr/lib has 32-bit libraries in Red Hat's family only.
            if name not in found.libraries_32_bit and _begins_with(path, _ELF_32):
                found.libraries_32_bit[name] = path
    return folders


def _add_others(found: DriverFiles) -> list[str]:
    """Add binaries, vendor files, X modules and firmware; return the folders that were searched."""
    native = machine.THIS
    xorg = [
        f"{library}/{folder}"
        for library in ("/usr/lib", "/usr/lib64", native.multiarch)
        for folder in driver_files.XORG_FOLDERS
    ]
    # A driver in a folder of its own, as on images of cloud hosts, has its programs beside the
    # libraries; /usr/bin may have a script that starts one by its path, which no container has.
    beside = os.path.dirname(found.folder.removeprefix(found.root)) + "/bin"
    programs = list(dict.fromkeys((beside, *driver_files.BINARY_FOLDERS)))
    looked_in = [*programs, *xorg]
    for folder in reversed(programs):
        for name in driver_files.BINARIES:
            if not _begins_with(f"{found.root}{folder}/{name}", b"#!"):
                _add_file(found, f"/usr/bin/{name}", f"{folder}/{name}")
    for names in driver_files.VENDOR_FILES:
        for folder in reversed(driver_files.VENDOR_FOLDERS):
            for name in reversed(names):
                name = name.format(machine=native.name)
                looked_in.append(os.path.dirname(f"{folder}/{name}"))
                # The loaders in the container look in /etc and /usr/share only.
                _add_file(found, f"{folder or '/etc'}/{names[0]}", f"{folder}/{name}")
    for folder in xorg:
        for module in driver_files.XORG_MODULES:
            for name in (module, f"{module}.{found.version}"):
                _add_file(found, f"{folder}/{module}", f"{folder}/{name}")
    firmware = f"{driver_files.FIRMWARE_FOLDER}/{found.version}"
    looked_in.append(firmware)
    for name in sorted(device_nodes.listed(found.root + firmware)):
        _add_file(found, f"{firmware}/{name}", f"{firmware}/{name}")
    return looked_in


def _begins_with(path: str, beginning: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(beginning)) == beginning
    except OSError:
        return False


def _add_file(found: DriverFiles, inside: str, path: str) -> None:
    last = final(found.root, path)
    if last and os.path.isfile(found.root + last):
        found.files[inside] = found.root + last
