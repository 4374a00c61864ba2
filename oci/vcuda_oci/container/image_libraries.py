"""Find in an image the loader's folder, and copies of libcuda and libnvidia-ml.

The loader would find such a copy before the shim: a driver without limits, of a version that the
kernel driver refuses. The low-level runtime mounts the host's libraries over the paths that are
found here. The copies are never run.
"""

from __future__ import annotations

from ..guest.tree import HINT, Tree
from ..model.errors import VcudaError
from ..system import machine
from .container import Container, Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

# A loader searches its libc's folder even without a cache, so no ldconfig has to run in the
# container. It may skip the other folders: Debian's loader skips lib64. Source: ld.so(8).
_LIBC = ("libc.so.6",)
_LOADER_FOLDERS = ("/usr/lib64", "/lib64", "/usr/lib", "/lib")
OURS = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so")
# Beside Debian's: the loader's own folders, ldconfig's settings in common images, what CUDA
# images set LD_LIBRARY_PATH to, and where other hosts' drivers are mounted.
_FOLDERS = (
    *_LOADER_FOLDERS,
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/nvidia/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)
# Past any of these an image is refused: the rest could hide a driver.
_MOST_FOLDERS = 1024
_CONF_BYTES, _ALL_CONF_BYTES, _CACHE_BYTES = 1 << 16, 1 << 20, 16 << 20
_PATH_BYTES = 1 << 17  # execve's limit for one variable, MAX_ARG_STRLEN


def library_folder(image: Tree) -> str:
    """The folder of the image's libc, as the container sees it.

    For an image without a libc, the first of the usual folders that it has. The result is always
    one of these constants, so an image that changes meanwhile can only lead to another of them. The
    low-level runtime makes the mount, inside the container's root.
    """
    debians = machine.THIS.multiarch
    usual = (debians, debians.removeprefix("/usr"), *_LOADER_FOLDERS)
    first = ""
    for folder in usual:
        if image.folder(folder) != folder:
            continue
        if image.files(folder, _LIBC):
            return folder
        first = first or folder
    return first or "/usr/lib64"


def find(image: Tree, container: Container, names: Collection[str]) -> dict[str, str]:
    """The name of the host's library to mount over each path in the image, by path.

    image: the container's. names: the libraries of the host's driver. Beside a libcuda or
    libnvidia-ml all of them are looked for, because parts of two drivers do not work together.
    Paths have no symlinks. A path that a volume hides is left out.

    Raises VcudaError: the image exceeds the bounds of guest.tree, or those above.
    """
    found: dict[str, str] = {}
    others = [name for name in names if name not in OURS]
    for folder in _folders(image, container.environment):
        if mine := image.files(folder, OURS):
            found.update({**image.files(folder, others), **mine})
    for name, path in _cached(image):
        path = image.file(path)
        if path:
            found.setdefault(path, name.partition(".so")[0] + ".so.1")
    if not found:
        return {}
    hidden = tuple(folder + "/" for folder in _mounted(image, container.mounts))
    return {path: name for path, name in found.items() if not path.startswith(hidden)}


def _mounted(tree: Tree, mounts: Sequence[Mount]) -> list[str]:
    """The folders at which volumes hide the image; a mount point made below one would be in the
    volume."""
    paths = [mount.destination.rstrip("/") for mount in mounts]
    return [path for place in paths for path in (place, tree.folder(place)) if path.strip("/")]


def _folders(tree: Tree, environment: Mapping[str, str]) -> list[str]:
    """The folders that a loader in the image may search, each once, with symlinks resolved."""
    debians = machine.THIS.multiarch.removeprefix("/usr")
    wanted = [*(root + debians for root in ("/usr", "", "/usr/local")), *_FOLDERS]
    wanted += [
        f"/usr/local/{name}/compat" for name in tree.names("/usr/local") if name.startswith("cuda")
    ]
    path = environment.get("LD_LIBRARY_PATH", "")
    if len(path) > _PATH_BYTES:
        raise VcudaError(f"is longer than {_PATH_BYTES}", "env LD_LIBRARY_PATH", "make it shorter")
    wanted += path.replace(";", ":").split(":")
    wanted += _configured(tree)
    wanted = list(dict.fromkeys(folder for folder in wanted if folder.startswith("/")))
    if len(wanted) > _MOST_FOLDERS:
        raise VcudaError(f"more than {_MOST_FOLDERS} library folders", "the image", HINT)
    return list(dict.fromkeys(real for folder in wanted if (real := tree.folder(folder))))


def _configured(tree: Tree) -> list[str]:
    """The folders in ld.so.conf and in the files that it usually includes."""
    files = [name for name in tree.names("/etc/ld.so.conf.d") if name.endswith(".conf")]
    found: list[str] = []
    size = 0
    for path in (*(f"/etc/ld.so.conf.d/{name}" for name in files), "/etc/ld.so.conf"):
        content = tree.read(path, _CONF_BYTES)
        size += len(content)
        if size > _ALL_CONF_BYTES:
            what = f"more than {_ALL_CONF_BYTES} bytes in ld.so.conf and its files"
            raise VcudaError(what, "/etc/ld.so.conf.d in the image", HINT)
        lines = content.decode("utf-8", "replace").split("\n")
        found += [line.partition("#")[0].strip() for line in lines]
    return found


def _cached(tree: Tree) -> list[tuple[str, str]]:
    """(name, path) of the driver's libraries in the image's ld.so.cache."""
    content = tree.read("/etc/ld.so.cache", _CACHE_BYTES)
    prefixes = tuple(name for name in OURS if name.endswith(".so"))
    if not any(prefix.encode() in content for prefix in prefixes):
        return []
    from ..system import ldcache  # only for an image with a driver

    native = (ldcache.NATIVE[machine.THIS.name],)
    found: list[tuple[str, str]] = []
    for entry in ldcache.entries(content, prefixes, native):
        if len(found) == _MOST_FOLDERS:
            what = f"more than {_MOST_FOLDERS} entries of a driver"
            raise VcudaError(what, "/etc/ld.so.cache in the image", HINT)
        found.append(entry)
    return found
