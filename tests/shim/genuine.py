"""NVIDIA's own libraries and nvidia-smi, fetched by packaging/genuine-driver into build/."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.gpu.guest import BUILD
from support.needed import skip_or_fail

FOLDER = Path(BUILD) / "genuine"


class Genuine:
    """One version, such as 535.261.03-1."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.root = FOLDER / version
        if not (self.root / ".complete").exists():
            skip_or_fail(
                f"no NVIDIA driver {version} in build/genuine: run packaging/genuine-driver"
            )
        self.smi = str(self.root / "usr/lib/nvidia/current/nvidia-smi")

    def library(self, name: str) -> Path:
        """The file that NAME, such as libcuda.so.1, is a link to."""
        return (self.root / "usr/lib/x86_64-linux-gnu/nvidia/current" / name).resolve()

    def exports(self, name: str) -> set[str]:
        listing = subprocess.run(
            ["nm", "-D", "--defined-only", self.library(name)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return {line.split()[-1] for line in listing.splitlines()}


def versions() -> list[str]:
    """The pinned versions, of packaging/genuine-driver itself."""
    script = Path(BUILD).parent / "packaging" / "genuine-driver"
    text = script.read_text(encoding="utf-8")
    block = text.split("pinned=(", 1)[1].split(")", 1)[0]
    return [line.strip().strip('"').split()[1] for line in block.splitlines() if line.strip()]
