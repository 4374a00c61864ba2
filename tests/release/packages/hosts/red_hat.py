"""A root with RHEL 9's layout of /usr and Python 3.9, made of this host's files."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess

from support.bundle import rootfs
from support.bundle.rootfs import LIBRARY_FOLDER, LOADER
from support.needed import skip_or_fail
from support.wrapper import pythons

VERSION = "3.9"
RELEASE = 'NAME="A kin of RHEL"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9"\n'
# What no program of ours imports.
_LEFT_OUT = ("test", "idlelib", "site-packages", "config-*", "ensurepip", "lib2to3", "__pycache__")


def make(root: str) -> str:
    """Lay it out in `root`: busybox, Python, runc, and libraries in /usr/lib64 alone."""
    rootfs.build(root)
    os.unlink(f"{root}/usr/lib64/{LOADER}")
    for library in os.listdir(f"{root}/{LIBRARY_FOLDER}"):
        shutil.move(f"{root}/{LIBRARY_FOLDER}/{library}", f"{root}/usr/lib64/{library}")
    os.rmdir(f"{root}/{LIBRARY_FOLDER}")
    for folder in ("mnt", "var/lib/rpm", "usr/share"):
        os.makedirs(f"{root}/{folder}")
    for name, text in (("os-release", RELEASE), ("ld.so.conf", "/usr/lib64\n")):
        with open(f"{root}/etc/{name}", "w") as file:
            file.write(text)
    runc = shutil.which("runc") or skip_or_fail("runc is missing")
    shutil.copy2(runc, f"{root}/usr/bin/runc")
    libraries = _needed_by(runc) | _bring_python(root)
    for library in libraries:
        if not os.path.exists(f"{root}/usr/lib64/{os.path.basename(library)}"):
            shutil.copy2(library, f"{root}/usr/lib64/")
    subprocess.run(["ldconfig", "-r", root], check=True)
    return root


def _bring_python(root: str) -> set[str]:
    """/usr/bin/python3; the libraries that it needs."""
    program = pythons.python(VERSION)
    shutil.copy2(program, f"{root}/usr/bin/python{VERSION}")
    os.symlink(f"python{VERSION}", f"{root}/usr/bin/python3")
    modules = f"{os.path.dirname(os.path.dirname(program))}/lib/python{VERSION}"
    ignored = shutil.ignore_patterns(*_LEFT_OUT)
    shutil.copytree(modules, f"{root}/usr/lib/python{VERSION}", ignore=ignored, symlinks=True)
    return _needed_by(program, *glob.glob(f"{modules}/lib-dynload/*.so"))


def _needed_by(*programs: str) -> set[str]:
    result = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"=> (/\S+)", result))
