"""Settings that another user could have changed are refused by the launcher and by Python."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable

import pytest

from support.files import write
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

__all__ = ["etc", "installed", "root"]


WRITABLE = "other users may write it and could change the settings; chmod go-w"


def given_away(folder: str) -> str:
    os.chown(folder + "/config.toml", 1234, 0)
    return f"{folder}/config.toml: {OWNED} {folder}/config.toml"


def open_to_all(folder: str) -> str:
    os.chmod(folder + "/config.toml", 0o646)
    return f"{folder}/config.toml: {WRITABLE} {folder}/config.toml"


def open_to_a_group(folder: str) -> str:
    os.chown(folder + "/config.toml", 0, 1234)
    os.chmod(folder + "/config.toml", 0o664)
    return f"{folder}/config.toml: {WRITABLE} {folder}/config.toml"


def open_to_a_listed_user(folder: str) -> str:
    # u::rw-, u:1234:rw-, g::r--, m::rw-, o::r--. Source: linux/posix_acl_xattr.h.
    entries = [(1, 6, -1), (2, 6, 1234), (4, 4, -1), (16, 6, -1), (32, 4, -1)]
    packed = b"".join(
        kind.to_bytes(2, "little")
        + mode.to_bytes(2, "little")
        + (user & 0xFFFFFFFF).to_bytes(4, "little")
        for kind, mode, user in entries
    )
    os.setxattr(folder + "/config.toml", "system.posix_acl_access", b"\x02\0\0\0" + packed)
    return f"{folder}/config.toml: {WRITABLE} {folder}/config.toml"


def folder_given_away(folder: str) -> str:
    os.chown(folder, 1234, 0)
    return f"{folder}: {OWNED} {folder}"


def folder_open_to_all(folder: str) -> str:
    os.chmod(folder, 0o777)
    return f"{folder}: {WRITABLE} {folder}"


def link_given_away(folder: str) -> str:
    config_map(folder)
    os.chown(folder + "/..data", 1234, 0, follow_symlinks=False)
    return f"{folder}/..data: {OWNED} {folder}/..data"


def link_out_of_an_open_folder(folder: str) -> str:
    config_map(folder)
    os.chmod(folder, 0o777)
    return f"{folder}: {WRITABLE} {folder}"


def target_given_away(folder: str) -> str:
    config_map(folder)
    target = os.path.realpath(folder + "/config.toml")
    os.chown(target, 1234, 0)
    return f"{target}: {OWNED} {target}"


def target_open_to_all(folder: str) -> str:
    config_map(folder)
    target = os.path.realpath(folder + "/config.toml")
    os.chmod(target, 0o666)
    return f"{target}: {WRITABLE} {target}"


def target_below_anothers_folder(folder: str) -> str:
    theirs = folder + "/home"
    os.makedirs(theirs + "/real")
    os.chown(theirs, 1234, 1234)
    os.rename(folder + "/config.toml", theirs + "/real/config.toml")
    os.symlink("./home/../home/real/config.toml", folder + "/config.toml")
    return f"{theirs}: {OWNED} {theirs}"


def link_to_nothing(folder: str) -> str:
    os.rename(folder + "/config.toml", folder + "/elsewhere")
    os.symlink("missing", folder + "/config.toml")
    return f"{folder}/config.toml: a link to a file that is missing; link it to one that is there"


def link_to_itself(folder: str) -> str:
    os.unlink(folder + "/config.toml")
    os.symlink("config.toml", folder + "/config.toml")
    return f"{folder}/config.toml: too many links; link it to the file itself"


REFUSED = [
    given_away, open_to_all, open_to_a_group, open_to_a_listed_user,
    folder_given_away, folder_open_to_all,
    link_given_away, link_out_of_an_open_folder, target_given_away, target_open_to_all,
    target_below_anothers_folder, link_to_nothing, link_to_itself,
]  # fmt: skip


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
def test_settings_that_another_user_could_have_changed_are_refused_in_one_line(
    installed: Installed, etc: str, change: Callable[[str], str]
) -> None:
    line = change(etc)
    assert by_launcher(installed) == line
    assert by_vcuda(installed) == line


def test_many_attributes_do_not_hide_a_settings_files_access_control_list(
    installed: Installed, etc: str
) -> None:
    """The kernel lists no more than 64 KiB of names; a tmpfs stores more."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        shutil.move(etc + "/config.toml", folder)
        os.symlink(folder + "/config.toml", etc + "/config.toml")
        line = open_to_a_listed_user(folder)
        with contextlib.suppress(OSError):
            for number in range(600):
                os.setxattr(folder + "/config.toml", f"user.{number:04d}" + "a" * 240, b"")
        assert by_launcher(installed) == by_vcuda(installed) == line


def test_settings_of_a_folder_that_is_swapped_in_meanwhile_never_count(
    installed: Installed, etc: str
) -> None:
    """The owner of the parent folder, another user, can exchange the folder at any moment."""
    theirs = f"{installed.prefix}/theirs"
    os.mkdir(theirs)
    installed.configure(runtime="/bin/true")
    write(theirs + "/config.toml", "runtime = '/usr/bin/env'\n")  # `env list` ends with 127
    for path in (theirs, theirs + "/config.toml"):
        os.chown(path, 1234, 1234)
    ended = threading.Event()

    def exchange() -> None:
        libc, paths = ctypes.CDLL(None), (etc.encode(), theirs.encode())
        while not ended.is_set():
            libc.renameat2(-100, paths[0], -100, paths[1], 2)

    exchanging = threading.Thread(target=exchange)
    exchanging.start()
    quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    codes = set()
    for _ in range(1000):
        pid = os.posix_spawn(installed.launcher, ["runc", "list"], {}, file_actions=quiet)
        codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    ended.set()
    exchanging.join()
    assert codes <= {0, 1}


def test_hook_reports_settings_of_another_user_and_asks_no_socket_that_they_name(
    installed: Installed, etc: str
) -> None:
    os.mkdir(etc + "/theirs")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as theirs:
        theirs.bind(etc + "/theirs/door.sock")
        theirs.listen()
        theirs.setblocking(False)
        installed.configure(state_dir=etc + "/theirs")
        line = given_away(etc)
        state = json.dumps({"ociVersion": "1.0.2", "id": "box", "status": "stopped", "bundle": etc})
        words = [installed.hook, "--config", installed.settings, "poststop", "box"]
        ran = subprocess.run(words, input=state, capture_output=True, text=True)
        assert ran.stderr == f"vcuda-container-hook: {line} (allocation box)\n"
        with pytest.raises(BlockingIOError):
            theirs.accept()
