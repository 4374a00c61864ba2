"""``vcuda-container-hook``: an OCI hook reads its state, does one thing, ends."""

from __future__ import annotations

import os
import sys

from vcuda_oci import config, jsontree, names
from vcuda_oci.errors import VcudaError
from vcuda_oci.ledger import Ledger

USAGE = """\
usage: vcuda-container-hook [--config FILE] poststop ALLOCATION < STATE

An OCI hook: the container's state (JSON) comes on standard input. The wrapper writes it into
config.json; nobody has to call it by hand.

  poststop ALLOCATION   release what the stopped container held
"""
MAX_STATE_BYTES = 16 << 20


def main() -> None:
    """Exit status 0, whatever poststop finds: a container that stopped can't be kept from it."""
    words = sys.argv[1:]
    settings = names.DEFAULT_CONFIG
    if words[:1] == ["--config"] and len(words) > 1:
        settings, words = words[1], words[2:]
    if words in (["--help"], ["-h"]):
        sys.stdout.write(USAGE)
        return
    if len(words) != 2 or words[0] != "poststop":
        sys.stderr.write(USAGE)
        sys.exit(2)
    try:
        state = sys.stdin.buffer.read(MAX_STATE_BYTES)
        poststop(Ledger(config.load(settings).state_dir), words[1], state)
    except (VcudaError, OSError) as error:
        sys.stderr.write(f"vcuda-container-hook: {error}\n")


def poststop(ledger: Ledger, allocation_id: str, state: bytes) -> None:
    """Release `allocation_id` if the container in `state` is the one that holds it.

    A container of a pod comes back under another id and gets the same share again, so its pod
    keeps it until the sandbox is gone; the sweep takes it then. Source: runtime-spec runtime.md,
    "State".
    """
    try:
        container_id = jsontree.loads(state.decode())["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise VcudaError(
            "no container state in JSON", "standard input", "ask the engine"
        ) from error
    if not os.path.isdir(ledger.allocations):
        return  # nothing was ever claimed here: a lock would only litter the place
    with ledger:
        allocation = ledger.get(allocation_id)
        if allocation is None or allocation.container_id != container_id:
            return
        if not allocation.pod.get("sandbox_id"):
            ledger.remove(allocation_id)
