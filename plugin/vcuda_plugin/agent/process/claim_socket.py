"""The process that serves the claim socket.

It is separate from the agent because it forks workers, and a process that uses grpc must not fork.
"""

from __future__ import annotations

import sys

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import claim_socket
from vcuda_oci.system.settings_file import Config

from . import confine, rights


def main(settings: Config) -> None:
    """Print "open" and serve until another process takes over the socket or the agent has ended."""
    try:
        opened = claim_socket.ClaimServer(
            settings.state_dir,
            settings.path,
            lambda name: confine.confine(rights.KEEPERS[name]),
        )
    except VcudaError as error:
        sys.exit(f"vcuda-node-agent: {error}")
    try:
        print("open", flush=True)
        opened.serve()
    finally:
        opened.close()
