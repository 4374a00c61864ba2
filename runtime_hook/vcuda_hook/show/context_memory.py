"""The memory that a CUDA context takes on each GPU, for the setting ``context-memory``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import vcuda_hook
import vcuda_oci
from vcuda_oci.host.host import Host
from vcuda_oci.model.errors import VcudaError

_START = """
import sys
sys.path[:0] = sys.argv.pop(1).split(":")
from vcuda_hook.show.context_probe import main
main(*sys.argv[1:])
"""
SECONDS = 120


def measure(facts: Host) -> dict[str, int | None]:
    """Bytes by UUID; None: NVML has no figure. Raises VcudaError: the driver does not work."""
    libraries = [
        f"{facts.folder}/{name}.so.{facts.version}" for name in ("libcuda", "libnvidia-ml")
    ]
    # The installation has one folder for all packages, the source tree two.
    places = [
        os.path.dirname(os.path.dirname(os.path.abspath(path or "")))
        for path in (vcuda_oci.__file__, vcuda_hook.__file__)
    ]
    # CUDA_VISIBLE_DEVICES of the caller must not hide a GPU.
    environment = {key: os.environ[key] for key in os.environ if key != "CUDA_VISIBLE_DEVICES"}
    try:
        done = subprocess.run(
            [sys.executable, "-ISBc", _START, ":".join(places), *libraries],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        hint = "check the driver with nvidia-smi"
        raise VcudaError(f"no context was made in {SECONDS} s", libraries[0], hint) from error
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        hint = "check the driver with nvidia-smi"
        raise VcudaError(f"a context cannot be measured: {reason[0]}", libraries[0], hint)
    measured: dict[str, int | None] = json.loads(done.stdout)
    return measured
