"""System calls that the agent's processes do not make, and the filter that refuses them.

The filter lists refused calls, not allowed ones, because it also applies to NVML, low-level
runtimes and credential plugins.
Source: the kernel's tables arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h; seccomp(2); linux/filter.h.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

_NONE = -1
# Numbers on x86_64 and aarch64, by name.
_NUMBERS = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fork": (57, _NONE),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, _NONE),
    "iopl": (172, _NONE),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "modify_ldt": (154, _NONE),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sendmmsg": (307, 269),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vfork": (58, _NONE),
    "vhangup": (153, 58),
}
MODULES = ("init_module", "finit_module", "delete_module")
HANDLES = ("open_by_handle_at",)
# Calls that a server does not need if it starts no process, signals none and connects to nothing.
UNUSED_BY_SERVERS = (
    "execve", "execveat", "fork", "vfork", "connect", "sendmmsg",
    # Without these, libc's abort() ends the process with an invalid instruction.
    "kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal",
)  # fmt: skip
_WITH_ARGUMENTS = ("clone", "clone3", "socket", "socketpair", "sendto", "sendmsg")
_FOR_SOME_PROCESSES = {*MODULES, *HANDLES, *UNUSED_BY_SERVERS, *_WITH_ARGUMENTS}
NEVER = tuple(sorted(_NUMBERS.keys() - _FOR_SOME_PROCESSES))


class _Machine(NamedTuple):
    """A processor architecture. audit: AUDIT_ARCH_*. column: its place in _NUMBERS."""

    audit: int
    column: int


_MACHINES = {"x86_64": _Machine(0xC000003E, 0), "aarch64": _Machine(0xC00000B7, 1)}
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x00010000
# mount, cgroup, UTS, IPC, user, pid, network and time namespaces
_CLONE_NEW = 0x7E020080
_FAMILIES = (1, 2, 10)  # unix, IPv4, IPv6
_STREAM, _TYPE_BITS = 1, 0xF  # the higher bits are SOCK_CLOEXEC and SOCK_NONBLOCK
# MSG_FASTOPEN: a send with this flag connects the socket to the address in the call. Without the
# flag, a stream socket ignores that address.
_FASTOPEN = 0x20000000
_FLAGS_AT = {"sendto": 3, "sendmsg": 2}

_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_LOAD, _RETURN = 0x20, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_RET|BPF_K
_AND = 0x54  # BPF_ALU|BPF_AND|BPF_K
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45  # BPF_JMP|BPF_JEQ, BPF_JGE, BPF_JSET, each |BPF_K
_NUMBER_AT, _MACHINE_AT, _ARGUMENT_AT = 0, 4, 16  # seccomp_data; the low half of its first argument


def filter_program(forbidden: Collection[str], only_threads: bool) -> bytes | None:
    """Return the seccomp filter for the kernel; None if the architecture is not known.

    The filter refuses new namespaces to every process. Calls of another architecture fail with
    ENOSYS.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return None
    return b"".join(_program(machine, forbidden, only_threads))


def _program(machine: _Machine, forbidden: Collection[str], only_threads: bool) -> Iterator[bytes]:
    def number(name: str) -> int:
        return _NUMBERS[name][machine.column]

    missing = _ERROR | errno.ENOSYS
    yield _step(_LOAD, _MACHINE_AT)
    yield from _return_unless(_EQUAL, machine.audit, missing)
    yield _step(_LOAD, _NUMBER_AT)
    if machine.column == 0:
        yield from _return_if(_AT_LEAST, _X32_BIT, missing)
    for name in forbidden:
        if number(name) != _NONE:
            yield from _return_if(_EQUAL, number(name), _ERROR | errno.EPERM)
    # A filter cannot read clone3's flags, which lie in memory. On ENOSYS libc uses clone.
    yield from _return_if(_EQUAL, number("clone3"), missing)
    flags = [_step(_LOAD, _ARGUMENT_AT), *_return_if(_ANY_BIT, _CLONE_NEW, _ERROR | errno.EPERM)]
    if only_threads:
        flags += _return_unless(_ANY_BIT, _CLONE_THREAD, _ERROR | errno.EPERM)
        for name, checks in _stream_checks().items():
            yield _step(_EQUAL, number(name), 0, len(checks))
            yield from checks
    flags.append(_step(_RETURN, _ALLOW))
    yield _step(_EQUAL, number("clone"), 0, len(flags))
    yield from flags
    yield _step(_RETURN, _ALLOW)


def _stream_checks() -> dict[str, list[bytes]]:
    """Return steps by system call that allow only stream sockets that accept connections."""
    is_stream = [_argument(1), _step(_AND, _TYPE_BITS)]
    is_stream += _return_unless(_EQUAL, _STREAM, _ERROR | errno.ESOCKTNOSUPPORT)
    is_stream.append(_step(_RETURN, _ALLOW))
    families = [_argument(0)]
    for behind, family in zip(reversed(range(len(_FAMILIES))), _FAMILIES):
        families.append(_step(_EQUAL, family, behind + 1))
    families.append(_step(_RETURN, _ERROR | errno.EAFNOSUPPORT))
    blocks = {"socket": families + is_stream, "socketpair": is_stream}
    for name, flags_at in _FLAGS_AT.items():
        refused = _return_if(_ANY_BIT, _FASTOPEN, _ERROR | errno.EPERM)
        blocks[name] = [_argument(flags_at), *refused, _step(_RETURN, _ALLOW)]
    return blocks


def _argument(index: int) -> bytes:
    return _step(_LOAD, _ARGUMENT_AT + 8 * index)


def _return_if(test: int, value: int, result: int) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, result)]


def _return_unless(test: int, value: int, result: int) -> list[bytes]:
    return [_step(test, value, 1, 0), _step(_RETURN, result)]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one sock_filter. if_true, if_false: how many of the next steps to skip."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
