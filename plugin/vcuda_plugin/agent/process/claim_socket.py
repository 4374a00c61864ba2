"""The agent's door, a process of its own: its workers are forks, and grpc must not be forked."""

from __future__ import annotations

import sys

from vcuda_oci import door
from vcuda_oci.errors import VcudaError

from . import confine, rights


def main(state_dir: str, settings: str) -> None:
    """Says "open" once it is, and ends when another takes over or the agent has ended."""
    try:
        opened = door.Door(state_dir, settings, lambda: confine.confine(rights.PAGE_KEEPER))
    except VcudaError as error:
        sys.exit(f"vcuda-node-agent: {error}")
    try:
        print("open", flush=True)
        opened.serve()
    finally:
        opened.close()
