"""Settings that only root could have changed, or none, are read by the launcher and by Python."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.wrapper.installed_wrapper import Installed
from support.wrapper.trusted_settings import (
    OWNED,
    by_launcher,
    by_vcuda,
    config_map,
    etc,
    installed,
    root,
)
from vcuda_oci.system import settings_file

__all__ = ["etc", "installed", "root"]


def test_folder_without_a_settings_file_means_the_defaults(
    installed: Installed, etc: str, tmp_path: Path
) -> None:
    os.unlink(etc + "/config.toml")
    assert settings_file.load(etc + "/config.toml").runtime == "runc"
    os.rmdir(etc)
    assert settings_file.load(etc + "/config.toml").runtime == "runc"
    os.symlink(tmp_path, etc)
    assert settings_file.load(etc + "/config.toml").runtime == "runc"
    words = [installed.launcher, "list"]
    ran = subprocess.run(words, capture_output=True, text=True, env={"PATH": "/nowhere"})
    assert etc not in ran.stderr


def plain(folder: str) -> None:
    assert os.stat(folder + "/config.toml").st_mode & 0o777 == 0o644


def open_to_roots_group(folder: str) -> None:
    os.chmod(folder + "/config.toml", 0o664)
    os.chmod(folder, 0o775)


def in_a_sticky_folder(folder: str) -> None:
    os.chmod(folder, 0o1777)


def in_a_config_map(folder: str) -> None:
    config_map(folder)


def behind_links_out_and_back(folder: str) -> None:
    os.mkdir(folder + "/real")
    os.rename(folder + "/config.toml", folder + "/real/file")
    os.symlink(f"../{os.path.basename(folder)}/real/./file", folder + "/relative")
    os.symlink(folder + "/relative", folder + "/config.toml")


ACCEPTED = [
    plain, open_to_roots_group, in_a_sticky_folder, in_a_config_map, behind_links_out_and_back
]  # fmt: skip


@pytest.mark.parametrize("change", ACCEPTED, ids=lambda change: change.__name__)
def test_settings_that_root_alone_could_have_changed_are_read(
    installed: Installed, etc: str, change: Callable[[str], None]
) -> None:
    change(etc)
    assert by_launcher(installed) == ""
    assert by_vcuda(installed) == ""


def test_users_own_settings_are_read_only_for_that_user(installed: Installed, etc: str) -> None:
    os.chown(etc, 1234, 1234)
    os.chown(etc + "/config.toml", 1234, 1234)
    os.chmod(etc + "/config.toml", 0o664)  # as umask 002 leaves it
    assert by_launcher(installed, 1234) == by_vcuda(installed, 1234) == ""
    line = f"{etc}/config.toml: {OWNED} {etc}/config.toml"
    assert by_launcher(installed) == by_vcuda(installed) == line


def test_roots_settings_are_read_where_root_has_no_number(installed: Installed, etc: str) -> None:
    """A user namespace, as rootless Podman has one, shows root's files as user 65534's."""
    inside = ["unshare", "--user", "--map-root-user"]
    assert by_launcher(installed, 1234, *inside) == by_vcuda(installed, 1234, *inside) == ""
    os.chown(etc + "/config.toml", 65534, 0)
    line = f"{etc}/config.toml: {OWNED} {etc}/config.toml".replace("1234", "65534")
    assert by_launcher(installed) == by_vcuda(installed) == line


def test_settings_on_a_read_only_mount_are_read(installed: Installed, etc: str) -> None:
    os.chmod(etc, 0o777)
    mounted = f"mount --bind {etc} {etc} && mount -o remount,bind,ro {etc} && exec "
    inside = ["unshare", "--mount", "sh", "-c", mounted + '"$@"', "sh"]
    assert by_launcher(installed, 0, *inside) == by_vcuda(installed, 0, *inside) == ""
