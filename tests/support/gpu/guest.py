"""A container's view without a container: a private mount namespace with /usr/local/vcuda in it.

The command runs with the shim on its library path under all four public names, which are hard
links of one file as they are bind mounts of one file in a container.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

from support import compiled
from support.files import ROOT
from vcuda_oci.model.names import PRIVATE_DRIVER
from vcuda_oci.pages import layout, page_reader, suspended_word

BUILD = os.path.join(ROOT, "build")
SHIM = os.path.join(BUILD, "lib", "libvcuda.so.1")
PYTHON = os.path.join(BUILD, "venv", "bin", "python3")
WORKLOAD = os.path.join(BUILD, "softgpu", "vcuda-workload")
NVIDIA_SMI = os.path.join(BUILD, "softgpu", "nvidia-smi")

MIB = 1 << 20
GIB = 1 << 30


def entrance() -> str:
    """The program that enters a guest: see its source."""
    return compiled.kept("enter_guest", "-static")


def then_enter(script: str) -> str:
    """For `Guest.enter`: a shell script that runs first, in the guest's mount namespace."""
    return f'{script}exec {entrance()} "$@"'


def share(uuid: str, memory_bytes: int, core_percent: int = 100, **more: int) -> layout.LimitsGpu:
    """A fixed share, at its own rate. more: what is different in its entry."""
    usual = {
        "core_ceiling_percent": core_percent,
        "policy": layout.POLICY_FIXED,
        "rate_ppm": core_percent * 10_000,
        "weight": 100,
    }
    return layout.LimitsGpu(uuid, memory_bytes, core_percent, **{**usual, **more})


class Guest:
    """One container's pages and libraries in a folder; `run` starts commands inside.

    enter: a shell script that makes the view of /usr/local/vcuda, in place of enter_guest.c. It is
    given the folder and the command.
    """

    enter = ""

    def __init__(
        self,
        folder: str,
        driver_root: str,
        gpus: Sequence[layout.LimitsGpu],
        shim: str = SHIM,
        meter_copies: bool = False,
        calls_ask: bool = False,
    ) -> None:
        self.folder = folder
        self.driver_root = driver_root
        self.meter_copies = meter_copies
        self.calls_ask = calls_ask
        os.makedirs(os.path.join(folder, "driver"))
        os.makedirs(os.path.join(folder, "lib"))
        libraries = os.path.join(driver_root, "usr", "lib", "x86_64-linux-gnu")
        names = sorted(os.listdir(libraries))
        for library, private in PRIVATE_DRIVER.items():
            real = os.path.join(libraries, library + ".1")
            if os.path.exists(real):
                os.symlink(os.path.realpath(real), os.path.join(folder, "driver", private))
        first = os.path.join(folder, "lib", names[0])
        subprocess.run(["cp", shim, first], check=True)
        for name in names[1:]:
            os.link(first, os.path.join(folder, "lib", name))
        self.public_names = names
        self.limits = os.path.join(folder, "limits")
        self.usage = os.path.join(folder, "usage")
        self.write_limits(gpus)
        with open(self.usage, "wb") as usage:
            usage.write(layout.empty_usage_page())
            usage.truncate(layout.USAGE_SIZE)

    def write_limits(self, gpus: Sequence[layout.LimitsGpu]) -> None:
        """In place: a running guest has the file mapped."""
        flags = os.O_WRONLY | os.O_CREAT
        fd = os.open(self.limits, flags, 0o644)
        page = layout.limits_page(gpus, meter_copies=self.meter_copies, calls_ask=self.calls_ask)
        os.pwrite(fd, page, 0)
        os.close(fd)

    def suspend(self, state: int) -> None:
        """Write layout.AWAKE, SUSPENDED or UNTIL_CALL, as the host does."""
        fd = os.open(self.limits, os.O_RDWR)
        suspended_word.write(fd, state)
        os.close(fd)

    def read_usage(self) -> page_reader.Usage:
        with open(self.usage, "rb") as usage:
            return page_reader.read_usage(usage.read())

    def start(self, *command: str, **options: Any) -> subprocess.Popen[str]:
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LD_LIBRARY_PATH": os.path.join(self.folder, "lib"),
            "SOFTGPU_ROOT": self.driver_root,
            "PYTHONPATH": os.path.join(ROOT, "oci"),
            **options.pop("env", {}),
        }
        enter = [entrance(), self.folder]
        if self.enter:
            enter = ["unshare", "-m", "--propagation", "private", "sh", "-c", self.enter, "sh"]
            enter += [self.folder]
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([*enter, *command], env=environment, text=True, **options)

    def run(self, *command: str, **options: Any) -> str:
        """The command's stdout; fails the test when it does not exit with 0."""
        process = self.start(*command, **options)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, f"{command[:2]}: exit {process.returncode}\n{out}\n{err}"
        return str(out)

    def json(self, *command: str, **options: Any) -> Any:
        return json.loads(self.run(*command, **options))

    def python(self, code: str, *arguments: str, **options: Any) -> Any:
        """Run CODE with cuda-bindings and pynvml installed; return the JSON that it prints."""
        return self.json(PYTHON, "-c", code, *arguments, **options)
