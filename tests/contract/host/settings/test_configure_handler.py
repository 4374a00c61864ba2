"""The handler that `vcuda configure containerd` writes beside the file's and its imports' own."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

import pytest

from support.files import write
from support.host.engine_conf import CRI, CRI3, REMARK, EngineConf, handler
from support.needed import skip_or_fail
from vcuda_hook.engines import containerd_files
from vcuda_hook.engines.texts import toml_text


@pytest.fixture
def conf(tmp_path: Any) -> EngineConf:
    conf = EngineConf(str(tmp_path))
    conf.path = f"{tmp_path}/engine/config.toml"
    return conf


def test_the_handler_is_made_like_the_one_that_is_the_default(
    conf: EngineConf, capsys: Any
) -> None:
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
    conf.write(before)
    assert conf.run("containerd") == 0
    assert conf.read() == before + "\n" + handler(
        conf.runtime,
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


def test_a_handler_of_another_kind_is_no_model(conf: EngineConf) -> None:
    before = f"""version = 2
[{CRI}]
default_runtime_name = "kata"
[{CRI}.runtimes.kata]
runtime_type = "io.containerd.kata.v2"
privileged_without_host_devices = true
"""
    conf.write(before)
    assert conf.run("containerd") == 0
    assert conf.read() == before + "\n" + handler(conf.runtime)


def test_an_import_that_would_hide_the_handler_is_refused(conf: EngineConf, capsys: Any) -> None:
    """containerd 1.x replaces a plugin's section by an imported file's; 2.x merges them."""
    other = write(f"{conf.folder}/engine/conf.d/cni.toml", f'[{CRI[:-11]}.cni]\nbin_dir = "/opt"\n')
    imports = f'imports = ["{conf.folder}/engine/conf.d/*.toml"]\n'
    conf.write("version = 2\n" + imports)
    assert conf.run("containerd") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {conf.path}: imports {other}, and the section there for io.containerd.grpc.v1.cri "
        f"replaces this file's; run this with --config {other}\n"
    )
    assert conf.read() == "version = 2\n" + imports
    assert conf.run("containerd", path=other) == 0
    with open(other) as file:
        assert f"[{CRI}.runtimes.vcuda]" in file.read()
    conf.write("version = 3\n" + imports)
    assert conf.run("containerd") == 0


def test_containerd_itself_reads_the_handler_out_of_its_own_default_config(
    conf: EngineConf,
) -> None:
    """And out of Debian's file, which names no handler: runc has to stay there all the same."""
    if shutil.which("containerd") is None:
        skip_or_fail("containerd is not installed")

    def asked(*words: str) -> str:
        words = ("containerd", *words)
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    debian = 'version = 2\n\n[plugins]\n  [plugins."io.containerd.grpc.v1.cri"]\n'
    version1 = "[plugins.cri]\nsandbox_image = 'x'\n"
    for before in (asked("config", "default"), debian, version1, "# nothing yet\n"):
        conf.write(before)
        assert conf.run("containerd", "--default") == 0
        lines = [
            line.strip() for line in asked("--config", conf.path, "config", "dump").split("\n")
        ]
        assert f"[{CRI}.runtimes.runc]" in lines
        assert 'default_runtime_name = "vcuda"' in lines
        at = lines.index(f"[{CRI}.runtimes.vcuda]")
        options = lines.index(f"[{CRI}.runtimes.vcuda.options]")
        assert at < lines.index('container_annotations = ["vcuda.io/*"]') < options
        assert at < lines.index('runtime_type = "io.containerd.runc.v2"', at) < options
        assert f'BinaryName = "{conf.runtime}"' in lines[options:]
        assert 'pod_annotations = ["' not in "".join(lines)
        assert conf.run("containerd", "--undo") == 0
        assert conf.read() == before


# As `containerd config default` of 2.3.4 writes it, version 4; version 3 differs in nothing here.
FRESH = """version = {version}
imports = ["{folder}/engine/conf.d/*.toml"]

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = 'runc'
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    sandboxer = 'podsandbox'
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = ''
      SystemdCgroup = false
"""
SYSTEMD = f"[{CRI3}.runtimes.runc.options]\nSystemdCgroup = true\n"
SYSTEMD_OF_VERSION_2 = f"version = 2\n[{CRI}.runtimes.runc.options]\nSystemdCgroup = true\n"
NVIDIA = f"""version = 2
[{CRI}]
default_runtime_name = "nvidia"
[{CRI}.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[{CRI}.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    "drop_in", ["version = 3\n" + SYSTEMD, SYSTEMD, SYSTEMD_OF_VERSION_2], ids=["3", "none", "2"]
)
def test_the_systemd_cgroup_driver_of_a_drop_in_is_the_handlers_too(
    conf: EngineConf, version: int, drop_in: str
) -> None:
    conf.write(FRESH.format(version=version, folder=conf.folder))
    write(f"{conf.folder}/engine/conf.d/10-cgroups.toml", drop_in)
    assert conf.run("containerd") == 0
    tree = toml_text.parse(conf.read())
    made = tree["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]["vcuda"]
    assert made == {
        "runtime_type": "io.containerd.runc.v2",
        "container_annotations": ["vcuda.io/*"],
        "options": {"SystemdCgroup": True, "BinaryName": conf.runtime},
    }


def test_containerd_1_reports_a_drop_ins_cgroup_driver_for_the_handler(
    conf: EngineConf,
) -> None:
    """The drop-in is edited, as it replaces the section of the main file."""
    drop_in = write(f"{conf.folder}/engine/conf.d/10-cgroups.toml", SYSTEMD_OF_VERSION_2)
    conf.write(f'version = 2\nimports = ["{conf.folder}/engine/conf.d/*.toml"]\n')
    assert conf.run("containerd", path=drop_in) == 0
    if shutil.which("containerd") is None:
        skip_or_fail("containerd is not installed")
    words = ["containerd", "--config", conf.path, "config", "dump"]
    dump = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    handlers = toml_text.parse(dump)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]
    assert handlers["runtimes"]["vcuda"]["options"]["SystemdCgroup"] is True


@pytest.mark.parametrize("version", [3, 4])
def test_a_default_that_a_later_drop_in_takes_away_is_refused(
    conf: EngineConf, capsys: Any, version: int
) -> None:
    before = FRESH.format(version=version, folder=conf.folder)
    conf.write(before)
    nvidia = write(f"{conf.folder}/engine/conf.d/99-nvidia.toml", NVIDIA)
    ours = f"{conf.folder}/engine/conf.d/99-vcuda.toml"
    assert conf.run("containerd", "--default") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {conf.path}: {nvidia} sets containerd.default_runtime_name to another value, and "
        f"counts after this file; run this with --config {ours}\n"
    )
    assert conf.read() == before
    assert conf.records() == []


def test_a_drop_in_that_sorts_last_makes_ours_the_default(conf: EngineConf) -> None:
    conf.write(FRESH.format(version=4, folder=conf.folder))
    nvidia = write(f"{conf.folder}/engine/conf.d/99-nvidia.toml", NVIDIA)
    write(f"{conf.folder}/engine/conf.d/10-cgroups.toml", SYSTEMD)
    ours = f"{conf.folder}/engine/conf.d/99-vcuda.toml"
    assert conf.run("containerd", "--default", path=ours) == 0
    view = containerd_files.view(conf.path, toml_text.parse(conf.read()))
    assert view.cri["containerd"]["default_runtime_name"] == "vcuda"
    made = view.cri["containerd"]["runtimes"]["vcuda"]
    assert made["options"] == {"SystemdCgroup": True, "BinaryName": conf.runtime}
    assert conf.run("containerd", "--undo", path=ours) == 0
    assert sorted(os.listdir(os.path.dirname(nvidia))) == ["10-cgroups.toml", "99-nvidia.toml"]


@pytest.mark.parametrize(
    "plugin", ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "cri"]
)
def test_a_cri_that_is_disabled_by_any_of_its_names_is_refused(
    conf: EngineConf, capsys: Any, plugin: str
) -> None:
    conf.write(f'version = 3\ndisabled_plugins = ["{plugin}"]\n')
    assert conf.run("containerd") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {conf.path}: disables the CRI plugin; take it out of disabled_plugins\n"
    )
