"""The GPU that ``vcuda demo`` uses: the host's, or a software GPU made for the demo."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile

from vcuda_oci.host import host
from vcuda_oci.ledger import liveness
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.system import settings_file
from vcuda_oci.system.settings_file import Config

from ..engines.texts.toml_values import written

SOFTWARE_MEMORY = "16GiB"
SOFTWARE_STATE = "/softgpu.state"
PREFIX = "vcuda-demo."
CREATE_SECONDS = 60


class Device:
    """A GPU, with settings of the demo's own: its ledger is not the host's.

    folder: holds everything that the demo writes. kind: "real" or "software". root: the driver
    root.
    """

    def __init__(self, folder: str, kind: str, root: str, extra_mounts: list[str]) -> None:
        self.folder, self.kind, self.root = folder, kind, root
        self.config_path = folder + "/config.toml"
        text = (
            f"state-dir = {written(folder + '/state')}\n"
            f"driver-root = {written(root)}\n"
            f"extra-mounts = {written(extra_mounts)}\n"
        )
        with open(self.config_path, "w") as file:
            file.write(text)
        self.settings = settings_file.load(self.config_path)

    def gpu(self) -> Gpu:
        """The first GPU. Raises VcudaError: the driver does not answer, or has no GPU."""
        facts = host.load(self.settings.driver_root, self.settings.state_dir + "/host.json")
        usable = [gpu for gpu in facts.gpus if not gpu.divided]
        if not usable:
            raise VcudaError("the driver has no GPU", self.root, "check it with nvidia-smi")
        return usable[0]


def private_folder() -> str:
    """A folder named after this process's pid and start time, so that a killed demo's folder can be
    told from a running one's.
    """
    pid = os.getpid()
    return tempfile.mkdtemp(prefix=f"{PREFIX}{pid}.{liveness.start_time(pid)}.")


def open_device(folder: str, settings: Config, softgpu_dir: str | None) -> Device:
    """The host's GPU if it has a driver with a device node, else a software GPU in `folder`.

    Raises VcudaError: neither exists.
    """
    real = f"{settings.driver_root.rstrip('/')}/dev/nvidia0"
    if os.path.exists(real):
        mounts = [":".join(mount) for mount in settings.extra_mounts]
        kind = "software" if os.path.exists(settings.driver_root + SOFTWARE_STATE) else "real"
        return Device(folder, kind, settings.driver_root, mounts)
    what = "this host has no NVIDIA driver and no software GPU is named"
    softgpu = program(softgpu_dir, "softgpu", what, "vcuda demo")
    root = folder + "/gpu"
    made = subprocess.run(
        [softgpu, "create", root, "--gpus", "1", "--memory", SOFTWARE_MEMORY],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=CREATE_SECONDS,
        check=False,
    )
    if made.returncode != 0:
        what = f"no software GPU: {made.stdout.strip()}"
        raise VcudaError(what, softgpu, "follow its hint, and run this again")
    return Device(folder, "software", root, [])


def program(softgpu_dir: str | None, name: str, what: str, where: str) -> str:
    """The full path of a program of the software GPU. Raises VcudaError: there is none."""
    path = os.path.abspath(f"{softgpu_dir}/{name}")
    if not softgpu_dir or not os.path.exists(path):
        hint = (
            "install vcuda-softgpu and use --softgpu-dir /usr/lib/vcuda/softgpu, "
            "or run 'make build' and use --softgpu-dir build/softgpu"
        )
        raise VcudaError(what, where, hint)
    return path


def sweep() -> None:
    """Remove the folders of killed demos; their containers ended with them."""
    parent = tempfile.gettempdir()
    for name in os.listdir(parent):
        pid, _, rest = name[len(PREFIX) :].partition(".")
        started = rest.partition(".")[0]
        if not name.startswith(PREFIX) or not (pid.isdigit() and started.isdigit()):
            continue
        if liveness.start_time(int(pid)) != int(started):
            shutil.rmtree(f"{parent}/{name}", ignore_errors=True)
