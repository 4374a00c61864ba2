"""`vcuda configure containerd`: its handler, beside what the file and its imports have."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from needed import cannot
from unit.ground import write
from unit.test_configure import CRI, CRI3, REMARK, Desk, handler


@pytest.fixture
def desk(tmp_path: Any) -> Desk:
    return Desk(str(tmp_path))


def test_the_handler_is_made_like_the_one_that_is_the_default(desk: Desk, capsys: Any) -> None:
    before = f"""version = 3
[{CRI3}]
  default_runtime_name = 'usual'
[{CRI3}.runtimes.usual]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "/etc/base.json"
  cni_conf_dir = ""
  pod_annotations = ["vcuda.io/*"]
  container_annotations = ["x"]
  [{CRI3}.runtimes.usual.options]
    BinaryName = "/opt/crun"
    SystemdCgroup = true
    NoPivotRoot = false
"""
    desk.write(before)
    assert desk.run("containerd") == 0
    assert desk.read() == before + "\n" + handler(
        desk.runtime,
        CRI3,
        '  base_runtime_spec = "/etc/base.json"\n',
        "  SystemdCgroup = true\n",
    ).replace(
        f'{REMARK}\n[{CRI3}.runtimes.vcuda]\n  base_runtime_spec = "/etc/base.json"\n'
        '  runtime_type = "io.containerd.runc.v2"\n',
        f'{REMARK}\n[{CRI3}.runtimes.vcuda]\n  runtime_type = "io.containerd.runc.v2"\n'
        '  base_runtime_spec = "/etc/base.json"\n',
    )
    assert "the low-level runtime is config.toml's 'runtime', not /opt/crun" in (
        capsys.readouterr().out
    )


def test_a_handler_of_another_kind_is_no_model(desk: Desk) -> None:
    before = f"""version = 2
[{CRI}]
default_runtime_name = "kata"
[{CRI}.runtimes.kata]
runtime_type = "io.containerd.kata.v2"
privileged_without_host_devices = true
"""
    desk.write(before)
    assert desk.run("containerd") == 0
    assert desk.read() == before + "\n" + handler(desk.runtime)


def test_an_import_that_would_hide_the_handler_is_refused(desk: Desk, capsys: Any) -> None:
    """containerd 1.x replaces a plugin's section by an imported file's; 2.x merges them."""
    other = write(f"{desk.folder}/engine/conf.d/cni.toml", f'[{CRI[:-11]}.cni]\nbin_dir = "/opt"\n')
    desk.write('version = 2\nimports = ["conf.d/*.toml"]\n')
    assert desk.run("containerd") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {desk.path}: imports {other}, whose section for io.containerd.grpc.v1.cri "
        f"replaces this file's; run this with --config {other}\n"
    )
    assert desk.run("containerd", path=other) == 0
    with open(other) as file:
        assert f"[{CRI}.runtimes.vcuda]" in file.read()
    desk.write('version = 3\nimports = ["conf.d/*.toml"]\n')
    assert desk.run("containerd") == 0


def test_containerd_itself_reads_the_handler_out_of_its_own_default_config(desk: Desk) -> None:
    """And out of Debian's file, which names no handler: runc has to stay there all the same."""
    if shutil.which("containerd") is None:
        cannot("containerd is not installed")

    def asked(*words: str) -> str:
        words = ("containerd", *words)
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    debian = 'version = 2\n\n[plugins]\n  [plugins."io.containerd.grpc.v1.cri"]\n'
    version1 = "[plugins.cri]\nsandbox_image = 'x'\n"
    for before in (asked("config", "default"), debian, version1, "# nothing yet\n"):
        desk.write(before)
        assert desk.run("containerd", "--default") == 0
        lines = [
            line.strip() for line in asked("--config", desk.path, "config", "dump").split("\n")
        ]
        assert f"[{CRI}.runtimes.runc]" in lines
        assert 'default_runtime_name = "vcuda"' in lines
        at = lines.index(f"[{CRI}.runtimes.vcuda]")
        options = lines.index(f"[{CRI}.runtimes.vcuda.options]")
        assert at < lines.index('container_annotations = ["vcuda.io/*"]') < options
        assert at < lines.index('runtime_type = "io.containerd.runc.v2"', at) < options
        assert f'BinaryName = "{desk.runtime}"' in lines[options:]
        assert 'pod_annotations = ["' not in "".join(lines)
        assert desk.run("containerd", "--undo") == 0
        assert desk.read() == before
