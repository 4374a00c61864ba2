"""A minimal root file system from the host's own files: busybox and the C library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping

LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"
# Needed by the tests' C programs, and by libcuda and libnvidia-ml.
LIBRARIES = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/sbin", LIBRARY_FOLDER)
# As in distributions with a merged /usr.
LINKS = {
    "bin": "usr/bin",
    "sbin": "usr/sbin",
    "lib": "usr/lib",
    "lib64": "usr/lib64",
    "usr/lib64/" + LOADER: "../lib/x86_64-linux-gnu/" + LOADER,
}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/resolv.conf": "",
}


class Missing(Exception):
    """The host lacks a file for the root file system."""


def build(folder: str, programs: Mapping[str, str] | None = None) -> None:
    """Fill `folder`; `programs` are host paths by their path in the container."""
    busybox = shutil.which("busybox", path="/usr/bin:/bin")
    if busybox is None:
        raise Missing("busybox (package busybox-static) is not installed")
    for name in FOLDERS:
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    os.makedirs(os.path.join(folder, "usr/lib64"), exist_ok=True)
    os.chmod(os.path.join(folder, "tmp"), 0o1777)
    for name, target in LINKS.items():
        os.symlink(target, os.path.join(folder, name))
    for name, text in FILES.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    _copy(busybox, os.path.join(folder, "usr/bin/busybox"))
    applets = subprocess.run(
        [busybox, "--list"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    for applet in set(applets) - {"busybox"}:
        os.symlink("busybox", os.path.join(folder, "usr/bin", applet))
    for library in (*LIBRARIES, LOADER):
        _copy(os.path.join("/", LIBRARY_FOLDER, library), _at(folder, LIBRARY_FOLDER, library))
    for inside, outside in (programs or {}).items():
        _copy(outside, _at(folder, inside))
        for library in needed(outside):
            if not os.path.exists(_at(folder, LIBRARY_FOLDER, os.path.basename(library))):
                _copy(library, _at(folder, LIBRARY_FOLDER, os.path.basename(library)))


def needed(program: str) -> list[str]:
    """Paths of a program's shared libraries, without those of the driver."""
    listing = subprocess.run(
        ["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    ).stdout
    found = re.findall(r"=> (/\S+)", listing)
    return [path for path in found if not re.match(r"lib(cuda|nvidia)", os.path.basename(path))]


def copy(rootfs: str, folder: str) -> None:
    """Copy the root file system for one container: engines make mount points in it.

    Without times and attributes: shutil.copytree takes three times as long, mostly for links.
    """
    os.makedirs(folder)
    with os.scandir(rootfs) as entries:
        for entry in entries:
            path = f"{folder}/{entry.name}"
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), path)
            elif entry.is_dir():
                copy(entry.path, path)
            else:
                shutil.copyfile(entry.path, path)
                os.chmod(path, entry.stat().st_mode & 0o7777)
    os.chmod(folder, os.stat(rootfs).st_mode & 0o7777)


def as_tar(rootfs: str, path: str) -> None:
    """Write the tree as a reproducible tar, owned by root, for `docker import` and image layers."""

    def owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        return member

    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(os.listdir(rootfs)):
            tar.add(os.path.join(rootfs, name), arcname=name, filter=owned_by_root)


def _at(folder: str, *parts: str) -> str:
    path = os.path.join(folder, *(part.lstrip("/") for part in parts))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def _copy(source: str, destination: str) -> None:
    if not os.path.exists(source):
        raise Missing(f"{source} does not exist")
    shutil.copy(source, destination)
    os.chmod(destination, 0o755)
