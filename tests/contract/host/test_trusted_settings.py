"""Settings that another user could have changed are refused by the launcher and by Python."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.config_map import ConfigMapVolume
from support.files import write
from support.installed_wrapper import Installed
from support.needed import skip_or_fail
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import settings_file

OWNED = "uid 1234 owns it and could change the settings; chown root"
WRITABLE = "other users may write it and could change the settings; chmod go-w"
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


def test_settings_closed_to_their_reader_are_refused(installed: Installed, etc: str) -> None:
    os.chmod(etc + "/config.toml", 0o600)
    line = f"{etc}/config.toml: cannot be read: Permission denied; make it a readable UTF-8 file"
    assert by_launcher(installed, 1234) == by_vcuda(installed, 1234) == line


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
