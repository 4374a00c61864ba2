"""The packages of this checkout, and packages of a later version."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import subprocess

from release.packages.hosts.machine import REPOSITORY
from support.needed import skip_or_fail

THIS, NEXT = "0.1.0", "0.1.1"
PARTS = ("runtime", "node-agent", "scheduler-extender", "softgpu")
# By Debian's name and by rpm's. The runtime is for each, the software GPU for amd64 alone.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


def folder() -> str:
    """Where `make packages` has put them."""
    made = REPOSITORY + "/build/packages"
    if not os.path.exists(made + "/SHA256SUMS"):
        skip_or_fail("packages not built; run 'make packages'")
    return made


def files(form: str, where: str, *parts: str, machine: str = "amd64") -> list[str]:
    """Paths of the packages of this form, `deb` or `rpm`, for a machine: all, or of these parts."""
    suitable = tuple(f"{one}.{form}" for one in (machine, ARCHITECTURES[machine], "all", "noarch"))
    found = [glob.glob(f"{where}/vcuda-{part}[-_]*.{form}") for part in parts or PARTS]
    found = [[path for path in paths if path.endswith(suitable)] for paths in found]
    assert all(len(paths) == 1 for paths in found), found
    return [path for (path,) in found]


def next_version() -> str:
    """The folder with the packages of the version after this one, built when they are older."""
    now, copy = folder(), REPOSITORY + "/build/next"
    with open(copy + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = copy + "/build/packages"
        sums = (f"{made}/SHA256SUMS", f"{now}/SHA256SUMS")
        if not os.path.exists(sums[0]) or os.path.getmtime(sums[0]) < os.path.getmtime(sums[1]):
            checkout(copy, with_build=True)
            for name in ("pyproject.toml", "oci/vcuda_oci/model/names.py"):
                with open(f"{copy}/{name}") as file:
                    text = file.read()
                with open(f"{copy}/{name}", "w") as file:
                    file.write(text.replace(f'= "{THIS}"', f'= "{NEXT}"', 1))
            with open(copy + "/packaging/config.toml", "a") as file:
                file.write("# A setting may come with a version.\n")
            build(copy, epoch() + 86400)
    return made


def checkout(target: str, with_build: bool = False) -> None:
    """This checkout's files in `target`, and with_build what was compiled of them."""
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target + "/build")
    listed = ["git", "-C", REPOSITORY, "ls-files", "-z", "--cached", "--others"]
    tracked = subprocess.run(
        [*listed, "--exclude-standard"], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, tracked):
        if os.path.exists(f"{REPOSITORY}/{name}"):
            os.makedirs(os.path.dirname(f"{target}/{name}"), exist_ok=True)
            shutil.copy2(f"{REPOSITORY}/{name}", f"{target}/{name}")
    os.symlink(REPOSITORY + "/build/venv", target + "/build/venv")
    if not with_build:
        return
    kinds = ("generated", "obj", "lib", "bin", "softgpu")
    of_arm64 = tuple(f"arm64/{kind}" for kind in ("obj", "lib", "bin"))
    for name in (*kinds, *of_arm64):
        shutil.copytree(f"{REPOSITORY}/build/{name}", f"{target}/build/{name}", symlinks=True)
    bring_musl(target)


def musl_of_arm64() -> str:
    """The version of it that packages have."""
    with open(REPOSITORY + "/build/arm64/musl/version") as file:
        return file.read().strip()


def bring_musl(checkout: str) -> None:
    """arm64's, which else is fetched."""
    place = checkout + "/build/arm64/musl"
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if not os.path.exists(place):
        os.symlink(REPOSITORY + "/build/arm64/musl", place)


def build(source: str, at: int) -> None:
    """Compile what packages hold and pack it, as of a commit at that time."""
    environment = {"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": str(at)}
    bring_musl(source)
    compiled = (["make", "-j2", "packed"], ["make", "-j2", "VCUDA_ARCH=arm64", "packed"])
    for words in (*compiled, ["packaging/packages"]):
        done = subprocess.run(
            words, cwd=source, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def epoch() -> int:
    """The time that this checkout's packages tell: its last commit's, when they were made."""
    return int(os.path.getmtime(REPOSITORY + "/build/package-trees/amd64/vcuda-runtime/usr"))
