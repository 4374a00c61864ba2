"""Settings that exist and cannot be read are refused, and no default runtime starts."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from support.files import write
from support.wrapper.installed_wrapper import Installed
from support.wrapper.trusted_settings import by_launcher, by_vcuda, config_map, etc, installed, root
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import settings_file

__all__ = ["etc", "installed", "root"]


# Holds a write lease until its input ends. Source: fcntl.h, F_SETLEASE, F_WRLCK.
LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def leased(path: str) -> Iterator[None]:
    words = [sys.executable, "-c", LEASE, path]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout
    try:
        assert holder.stdout.readline() == b"held\n"
        yield
    finally:
        holder.communicate()


def by_hook(installed: Installed) -> str:
    """The error line of the hook that releases what the container `box` held."""
    state = json.dumps({"ociVersion": "1.0.2", "id": "box", "status": "stopped", "bundle": "/"})
    words = [installed.hook, "--config", installed.settings, "poststop", "box"]
    ran = subprocess.run(words, input=state, capture_output=True, text=True)
    line = ran.stderr.removeprefix("vcuda-container-hook: ")
    return line.removesuffix(" (allocation box)\n")


@pytest.mark.parametrize("is_link", [False, True], ids=["plain", "linked"])
def test_settings_under_a_lease_are_refused_and_no_default_runtime_starts(
    installed: Installed, etc: str, is_link: bool
) -> None:
    if is_link:
        config_map(etc)
    path = etc + "/config.toml"
    line = f"{path}: a program holds a lease on it; end that program"
    for run in (by_launcher, by_vcuda, by_hook):
        with leased(os.path.realpath(path)):
            assert run(installed) == line


def below_a_file(folder: str) -> str:
    os.unlink(folder + "/config.toml")
    os.rmdir(folder)
    write(folder, "")
    return f"{folder}/config.toml: a part of its path is not a folder; correct the path"


def below_a_link_to_nothing(folder: str) -> str:
    os.unlink(folder + "/config.toml")
    os.rmdir(folder)
    os.symlink("missing", folder)
    return f"{folder}: a link to a folder that is missing; link it to one that is there"


def too_large(folder: str) -> str:
    os.truncate(folder + "/config.toml", (64 << 20) + 1)
    path = folder + "/config.toml"
    return f"{path}: cannot be read: File too large; make it a readable UTF-8 file"


@pytest.mark.parametrize(
    "change", [below_a_file, below_a_link_to_nothing, too_large], ids=lambda c: c.__name__
)
def test_settings_that_cannot_be_read_are_refused_and_no_default_runtime_starts(
    installed: Installed, etc: str, change: Callable[[str], str]
) -> None:
    path, line = etc + "/config.toml", change(etc)
    try:
        assert by_launcher(installed) == by_hook(installed) == line
        with pytest.raises(VcudaError) as refused:
            settings_file.load(path)
        assert str(refused.value) == line
    finally:
        if os.path.lexists(etc) and not os.path.isdir(etc):
            os.unlink(etc)


def bind(path: str) -> None:
    socket.socket(socket.AF_UNIX).bind(path)


KINDS = {
    "folder": os.mkdir,
    "FIFO": os.mkfifo,
    "socket": bind,
    "device": lambda path: os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 3)),  # /dev/null
    "endless device": lambda path: os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 5)),
}


@pytest.mark.timeout(60)  # a FIFO must not be waited for
@pytest.mark.parametrize("is_link", [False, True], ids=["plain", "linked"])
@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_are_not_a_regular_file_are_refused_and_no_default_runtime_starts(
    installed: Installed, etc: str, kind: str, is_link: bool
) -> None:
    path = etc + "/config.toml"
    os.unlink(path)
    if is_link:
        os.symlink("other", path)
    place = os.path.realpath(path)
    KINDS[kind](place)
    os.chmod(place, 0o755)
    line = f"{path}: is not a regular file; make it a readable UTF-8 file"
    for run in (by_launcher, by_vcuda, by_hook):
        assert run(installed) == line


def test_settings_closed_to_their_reader_are_refused(installed: Installed, etc: str) -> None:
    os.chmod(etc + "/config.toml", 0o600)
    line = f"{etc}/config.toml: cannot be read: Permission denied; make it a readable UTF-8 file"
    assert by_launcher(installed, 1234) == by_vcuda(installed, 1234) == line
