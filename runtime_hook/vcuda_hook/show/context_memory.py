"""The memory that a CUDA context takes on each GPU, for the setting ``context-memory``."""

from __future__ import annotations

import json
import os
import subprocess

from vcuda_oci.host.host import Host
from vcuda_oci.model.errors import VcudaError

from ..live import own_program

SECONDS = 120
_HINT = "check the driver with nvidia-smi"


def measure(facts: Host) -> dict[str, int | None]:
    """Bytes by UUID; None: NVML has no figure. Raises VcudaError: the driver does not work."""
    libraries = [
        f"{facts.folder}/{name}.so.{facts.version}" for name in ("libcuda", "libnvidia-ml")
    ]
    # CUDA_VISIBLE_DEVICES of the caller must not hide a GPU.
    environment = {key: os.environ[key] for key in os.environ if key != "CUDA_VISIBLE_DEVICES"}
    try:
        done = subprocess.run(
            own_program.command("show.context_probe", *libraries),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise VcudaError(f"no context was made in {SECONDS} s", libraries[0], _HINT) from error
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        raise VcudaError(f"a context cannot be measured: {reason[0]}", libraries[0], _HINT)
    measured: dict[str, int | None] = json.loads(done.stdout)
    return measured
