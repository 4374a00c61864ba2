"""Check the state folder: can records be written, are they whole, is the claim socket served?"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from vcuda_oci.ledger.ledger import Ledger, broken_record
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.pages import layout
from vcuda_oci.start import claim_socket
from vcuda_oci.system import kernel_tables
from vcuda_oci.system.settings_file import Config

from . import finding
from .finding import ERROR, INFO, OK, UNKNOWN, WARNING, Finding

STATE_DIR, RECORDS, CLAIM_SOCKET = "state-dir", "records", "door"
CHECKS = (STATE_DIR, RECORDS, CLAIM_SOCKET)
SOCKET_SECONDS = 2.0
# Bytes that one more container needs: pages, record and folders.
_LEAST_BYTES, _LEAST_FILES = layout.USAGE_SIZE + (64 << 10), 16
_IN_MEMORY = ("tmpfs", "ramfs")
# A container may write a program into its usage page and make it setuid.
_OPTIONS = {"nosuid": os.ST_NOSUID, "nodev": os.ST_NODEV, "noexec": os.ST_NOEXEC}


@dataclass
class Place:
    """A folder, or its nearest parent that exists. kind: its file system, as mounted.

    is_apart: the file system holds only this folder. missing: mount options that it lacks.
    is_folder: it is a folder. is_ours: root or this process's user owns it, and no other user may
    write to it. free_files: None if the file system does not count them.
    """

    path: str
    there: str
    is_folder: bool = True
    is_ours: bool = True
    is_writable: bool = True
    kind: str = ""
    is_apart: bool = False
    missing: Sequence[str] = ()
    free_bytes: int = 0
    free_files: int | None = None


def examine(settings: Config) -> list[Finding]:
    state_dir = settings.state_dir
    return [
        state_folder(read_host(state_dir)),
        *records(state_dir),
        socket_answers(knock(state_dir)),
    ]


def read_host(path: str, process: str = "/proc/self") -> Place:
    """Examine the state folder. process: the folder in /proc of a process; its mounts count."""
    there = path
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    place = Place(path, there)
    place.is_folder = os.path.isdir(there)
    status, space = os.stat(there), os.statvfs(there)
    place.is_ours = status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022
    place.is_writable = os.access(there, os.W_OK | os.X_OK)
    point, place.kind = _file_system(os.path.realpath(there), process)
    place.missing = [name for name, flag in _OPTIONS.items() if not space.f_flag & flag]
    place.is_apart = point == os.path.realpath(path)
    place.free_bytes = space.f_bavail * space.f_frsize
    place.free_files = space.f_favail if space.f_files else None
    return place


def state_folder(place: Place) -> Finding:
    def found(severity: str, what: str, hint: str, where: str = place.there) -> Finding:
        return Finding(STATE_DIR, severity, what, where, hint)

    if not place.is_folder:
        return found(ERROR, "is not a folder", "remove it, or set state-dir in config.toml")
    if place.there == place.path and not place.is_ours:
        return found(ERROR, "other users may write it", "run 'chmod 755' and 'chown root'")
    if not place.is_writable and os.geteuid() != 0:
        return found(UNKNOWN, "whether root can write it is not known", "run it as root")
    if not place.is_writable:
        return found(ERROR, "cannot be written", "mount it writable, or set state-dir")
    has_files = place.free_files is None or place.free_files >= _LEAST_FILES
    if place.free_bytes < _LEAST_BYTES or not has_files:
        return found(ERROR, "is full: no room for another container's pages", "free space there")
    if place.kind not in _IN_MEMORY:
        what = f"is on {place.kind or 'an unknown file system'}: records outlive a reboot that "
        hint = "mount a tmpfs there, as run-vcuda.mount does, or set state-dir to a folder of one"
        return found(WARNING, what + "ends every container", hint, place.path)
    if not place.is_apart:
        what = (
            f"shares its {place.kind} with others: a container without a memory limit can fill it"
        )
        hint = "mount a tmpfs there while no container has a share, as run-vcuda.mount does"
        return found(WARNING, what, hint, place.path)
    if place.missing:
        what = f"is mounted without {','.join(place.missing)}: containers write files there"
        hint = "mount it with nosuid,nodev,noexec, as run-vcuda.mount does"
        return found(WARNING, what, hint, place.path)
    return Finding(STATE_DIR, OK, f"a {place.kind} of its own", place.path)


def records(state_dir: str) -> list[Finding]:
    try:
        allocations, broken = Ledger(state_dir).read()
    except (OSError, VcudaError) as error:
        what = error.what if isinstance(error, VcudaError) else f"cannot be read: {error.strerror}"
        return [Finding(RECORDS, UNKNOWN, what, f"{state_dir}/allocations", "run it as root")]
    found = [finding.of_error(RECORDS, broken_record(*each)) for each in broken]
    return found or [Finding(RECORDS, OK, f"{len(allocations)} whole, none broken")]


def knock(state_dir: str) -> str:
    """Ask the claim socket. Returns "": it answered; else "closed", "silent" or "forbidden"."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.settimeout(SOCKET_SECONDS)
        try:
            asking.connect(f"{state_dir}/{claim_socket.NAME}")
            asking.send(b"\0", socket.MSG_NOSIGNAL)  # not a request: only answered
            return "" if asking.recv(64) else "closed"
        except PermissionError:
            return "forbidden"
        except socket.timeout:
            return "silent"
        except OSError:
            return "closed"


def socket_answers(reason: str) -> Finding:
    if reason == "closed":
        what = "not open: each container's start runs Python"
        hint = "run 'vcuda serve' as a service for faster starts"
        return Finding(CLAIM_SOCKET, INFO, what, hint=hint)
    if reason == "silent":
        what = f"gave no answer in {SOCKET_SECONDS:g} s: each start waits for it"
        return Finding(CLAIM_SOCKET, WARNING, what, hint="restart 'vcuda serve'")
    if reason == "forbidden":
        return Finding(CLAIM_SOCKET, UNKNOWN, "only root may ask", hint="run it as root")
    return Finding(CLAIM_SOCKET, OK, "'vcuda serve' answers")


def _file_system(path: str, process: str) -> tuple[str, str]:
    """The mount point and type of the file system that has `path`."""
    nearest, kind = "", ""
    for mount in kernel_tables.mounts(process):
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and len(mount.point) >= len(nearest):
            nearest, kind = mount.point, mount.kind
    return nearest, kind
