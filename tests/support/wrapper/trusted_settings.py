"""The settings of an installed wrapper, and what the launcher and `vcuda` say of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from support.kubelet.config_map import ConfigMapVolume
from support.needed import skip_or_fail
from support.wrapper.installed_wrapper import Installed

OWNED = "uid 1234 owns it and could change the settings; chown root"
FIRST = "import sys; sys.path.insert(0, {path!r})"
VCUDA = FIRST + "; from vcuda_hook.cli.main import main; sys.exit(main())"


@pytest.fixture(autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        skip_or_fail("giving a file to another user takes root")


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    """In a folder that every user may enter."""
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    yield Installed(folder + "/prefix")
    shutil.rmtree(folder)


@pytest.fixture
def etc(installed: Installed) -> Iterator[str]:
    """The folder of config.toml, as it was after the test too."""
    folder = os.path.dirname(installed.settings)
    shutil.rmtree(folder)
    os.mkdir(folder)
    installed.configure(runtime=installed.runtime.path)
    yield folder
    if os.path.islink(folder):
        os.unlink(folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)


def by_launcher(installed: Installed, user: int = 0, *before: str) -> str:
    """The launcher's error line; "": it started the runtime that the settings name."""
    installed.runtime.forget()
    os.chmod(installed.runtime.folder, 0o777)
    words = [*before, installed.launcher, "list"]
    ran = subprocess.run(
        words, capture_output=True, text=True, user=user, group=user, extra_groups=[], cwd="/"
    )
    assert (ran.returncode == 0) == bool(installed.runtime.calls()) == (ran.stderr == "")
    return ran.stderr.removeprefix("vcuda-container-runtime: ").rstrip("\n")


def by_vcuda(installed: Installed, user: int = 0, *before: str) -> str:
    """The same of a `vcuda` command that reads the file."""
    start = VCUDA.format(path=installed.python_path)
    words = [*before, "/usr/bin/python3", "-I", "-S", "-B", "-c", start]
    words += ["--config", installed.settings, "ps"]
    ran = subprocess.run(
        words, capture_output=True, text=True, user=user, group=user, extra_groups=[], cwd="/"
    )
    assert ran.returncode == bool(ran.stderr)
    return ran.stderr.removeprefix("vcuda: ").rstrip("\n")


def config_map(folder: str) -> ConfigMapVolume:
    """Put a ConfigMap's volume in the settings' place, in a folder that only root may write."""
    with open(folder + "/config.toml") as file:
        text = file.read()
    os.unlink(folder + "/config.toml")
    volume = ConfigMapVolume(folder, {"config.toml": text})
    os.chmod(folder, 0o755)
    return volume
