"""The engines of `vcuda configure`. Imports nothing: every verb's command line needs them."""

from __future__ import annotations

ENGINES = ("docker", "containerd", "crio", "podman")
EVERY = "all"  # with --undo only
