"""The process that serves the claim socket.

It is separate from the agent because it forks workers, and a process that uses grpc must not fork.
"""

from __future__ import annotations

import sys

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import claim_socket

from . import confine, rights


def main(state_dir: str, settings: str) -> None:
    """Print "open" and serve until another process takes over the socket or the agent has ended."""
    try:
        opened = claim_socket.ClaimServer(
            state_dir, settings, lambda name: confine.confine(rights.KEEPERS[name])
        )
    except VcudaError as error:
        sys.exit(f"vcuda-node-agent: {error}")
    try:
        print("open", flush=True)
        opened.serve()
    finally:
        opened.close()
