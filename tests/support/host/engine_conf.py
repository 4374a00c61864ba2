"""Run `vcuda configure` on an engine's configuration file."""

from __future__ import annotations

import os

from support.files import script, write
from vcuda_hook.cli import main

CRI = 'plugins."io.containerd.grpc.v1.cri".containerd'
CRI3 = 'plugins."io.containerd.cri.v1.runtime".containerd'
REMARK = "# Added by 'vcuda configure'; with --undo it goes again."


class EngineConf:
    """An engine's file, a config.toml, and the path of a runtime."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.settings = write(f"{folder}/vcuda/config.toml", "")
        self.runtime = script(f"{folder}/bin/vcuda-container-runtime", "")
        self.path = f"{folder}/engine/file"
        # CRI-O reads this file before its drop-ins.
        write(f"{folder}/crio.conf", f'[crio.runtime]\nconmon = "{self.runtime}"\n')

    def run(self, *words: str, **options: str) -> int:
        path = options.get("path", self.path)
        where = ["--config", path, "--runtime-path", self.runtime]
        return main.main(["--config", self.settings, "configure", *words, *where])

    def write(self, text: str, mode: int = 0o644) -> str:
        return write(self.path, text, mode)

    def read(self) -> str:
        with open(self.path, newline="") as file:
            return file.read()

    def records(self) -> list[str]:
        folder = f"{self.folder}/vcuda/configured"
        return os.listdir(folder) if os.path.isdir(folder) else []


def handler(runtime: str, table: str = CRI, more: str = "", options: str = "") -> str:
    return (
        f"{REMARK}\n[{table}.runtimes.vcuda]\n"
        f'{more}  runtime_type = "io.containerd.runc.v2"\n'
        '  container_annotations = ["vcuda.io/*"]\n'
        f'[{table}.runtimes.vcuda.options]\n{options}  BinaryName = "{runtime}"\n'
    )
