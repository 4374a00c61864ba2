"""Drop rights of the calling process for ever: capabilities, uid, system calls, files.

Source: capabilities(7), prctl(2), seccomp(2), landlock(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Collection, Iterable

from vcuda_oci.system import kernel_tables

from .rights import Rights
from .system_calls import filter_program

_BITS = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "DAC_READ_SEARCH": 2,
    "FOWNER": 3,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "LINUX_IMMUTABLE": 9,
    "NET_BIND_SERVICE": 10,
    "SYS_MODULE": 16,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "MKNOD": 27,
}
_CAPABILITY_VERSION_3 = 0x20080522
_PR_SET_KEEPCAPS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 8, 22, 24, 38
_SECCOMP_MODE_FILTER = 2
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_RULE_PATH_BENEATH, _LANDLOCK_CREATE_RULESET_VERSION = 1, 1
# LANDLOCK_ACCESS_FS_*: all rights of Landlock's first version, then those used here.
_ALL_FILE_RIGHTS = (1 << 13) - 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_REG = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 8
_READ, _WRITE = _READ_FILE | _READ_DIR, _WRITE_FILE | _REMOVE_FILE | _MAKE_REG

_libc = ctypes.CDLL(None, use_errno=True)


def confine(rights: Rights) -> None:
    """Drop every right of this process that `rights` does not name. Raises OSError."""
    kept = sum(1 << _BITS[name] for name in rights.capabilities)
    permitted = int(kernel_tables.status()["CapPrm"], 16)
    if permitted >> _BITS["SETPCAP"] & 1:
        for bit in range(64):
            # prctl fails at the first capability that the kernel does not know.
            if not kept >> bit & 1 and _libc.prctl(_PR_CAPBSET_DROP, bit, 0, 0, 0):
                break
    if rights.uid and permitted >> _BITS["SETUID"] & 1:
        _prctl(_PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setresgid(rights.uid, rights.uid, rights.uid)
        os.setresuid(rights.uid, rights.uid, rights.uid)
    _keep_capabilities(kept & permitted)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    program = filter_program(rights.forbidden, rights.only_threads)
    if program is not None:
        _set_filter(program)


def only_files(reads: Iterable[str], writes: Collection[str]) -> bool:
    """Allow access only to these paths and below; return False if the kernel has no Landlock."""
    version = _libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)
    if version < 1:
        return False
    handled = struct.pack("=Q", _ALL_FILE_RIGHTS)
    ruleset = _check(_libc.syscall(_LANDLOCK_CREATE_RULESET, handled, len(handled), 0))
    try:
        for path in {*reads, *writes}:
            with contextlib.suppress(FileNotFoundError):
                _allow(ruleset, path, _READ | (_WRITE if path in writes else 0))
        _check(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _allow(ruleset: int, path: str, allowed: int) -> None:
    folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            allowed &= _READ_FILE | _WRITE_FILE
        rule = struct.pack("=Qi", allowed, folder)
        _check(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(folder)


def _keep_capabilities(kept: int) -> None:
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    _check(_libc.capset(header, struct.pack("=6I", low, low, 0, high, high, 0)))


def _set_filter(program: bytes) -> None:
    class _Program(ctypes.Structure):
        """sock_fprog."""

        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]

    steps = _Program(len(program) // 8, program)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(steps))


def _prctl(option: int, value: int, argument: object = 0) -> None:
    _check(_libc.prctl(option, value, argument, 0, 0))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
