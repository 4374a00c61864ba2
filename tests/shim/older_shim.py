"""The shim of another day, as a container keeps it that was started before the host was upgraded.

`git archive ac28e79` has what older/libvcuda-ac28e79.tar.xz has: the first with grants that end.
It is compiled anew: a clone may have no history, and a binary in the repository cannot be reviewed.
"""

from __future__ import annotations

import glob
import os
import subprocess
from typing import Any

from support.gpu.guest import BUILD, Guest

ARCHIVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "older/libvcuda-ac28e79.tar.xz")
# What the host mounted then below /usr/local/vcuda/driver.
NAMES_THEN = {"cuda": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}


def build(folder: str) -> str:
    """The path of the shim, compiled in `folder`."""
    (headers,) = glob.glob(f"{BUILD}/venv/lib/python3*/site-packages/nvidia/cu13/include")
    run: dict[str, Any] = {"cwd": f"{folder}/libvcuda", "check": True, "capture_output": True}
    subprocess.run(["tar", "-xJf", ARCHIVE, "-C", folder], check=True)
    # Its list knows no call of later headers. So this rule must be allowed to match none today.
    with open(f"{folder}/libvcuda/policy.list", "a") as rules:
        rules.write("passed cu* unknown then\n")
    subprocess.run(["sed", "-i", "s/if missing or idle:/if missing:/", "generate/policy.py"], **run)
    subprocess.run(["python3", "-m", "generate", headers, "policy.list", "generated"], **run)
    flags = ["-std=gnu11", "-O2", "-D_GNU_SOURCE", "-fvisibility=hidden", "-fPIC", "-pthread"]
    flags += ["-I.", "-Isrc", "-Igenerated", "-isystem", headers]
    linked = ["-soname,libcuda.so.1", "--version-script=generated/vcuda.map", "-Bsymbolic"]
    linked += ["-z,lazy", "-z,nodelete", "-z,defs", "--disable-new-dtags,-rpath,$ORIGIN"]
    sources = [*glob.glob(f"{folder}/libvcuda/src/*.c"), "generated/entries.S"]
    words = ["gcc", *flags, "-shared", "-o", "libvcuda.so.1", *sources, "-ldl"]
    subprocess.run([*words, *(f"-Wl,{word}" for word in linked)], **run)
    return f"{folder}/libvcuda/libvcuda.so.1"


def name_drivers(guest: Guest) -> None:
    """A container that was created then has the driver's libraries under the names of then."""
    for now, then in NAMES_THEN.items():
        os.rename(f"{guest.folder}/driver/{now}", f"{guest.folder}/driver/{then}")
