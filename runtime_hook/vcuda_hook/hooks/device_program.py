"""cgroup v2's device rules: put ours before those of the BPF program that the runtime attached.

All programs of a cgroup must allow an access, so an additional program could only deny. Each
attached program is replaced by a copy with a few instructions before it that allow our nodes.
"""

from __future__ import annotations

import ctypes
import os
import struct

from . import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    Number = tuple[int, int]  # major, minor

_PROG_LOAD, _PROG_ATTACH, _PROG_GET_FD, _OBJ_GET_INFO, _PROG_QUERY = 5, 8, 13, 15, 16
_CGROUP_DEVICE = 6  # BPF_CGROUP_DEVICE, an attach type
_TYPE_CGROUP_DEVICE = 15  # BPF_PROG_TYPE_CGROUP_DEVICE
_ALLOW_MULTI, _REPLACE = 2, 4
_MOST_PROGRAMS = 64
_LOG_BYTES = 1 << 16

# Offsets in struct bpf_cgroup_dev_ctx. The low half of the first is the device's type, the high
# half the access: 1 mknod, 2 read, 4 write.
_ACCESS_TYPE, _MAJOR, _MINOR = 0, 4, 8
_TYPE_CHAR, _MKNOD = 2, 1

_LOAD_W, _JUMP_NE, _JUMP_SET, _AND_K, _MOV_K, _EXIT = 0x61, 0x55, 0x45, 0x57, 0xB7, 0x95
_CALL, _LOAD_64 = 0x85, 0x18
_R0, _R1, _R2 = range(3)
_NEXT_NODE = -1


class _Query(ctypes.Structure):
    _fields_ = [
        ("target", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("query_flags", ctypes.c_uint32),
        ("attach_flags", ctypes.c_uint32),
        ("ids", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    ]


class _InfoCall(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_uint32), ("size", ctypes.c_uint32), ("info", ctypes.c_uint64)]


class _Info(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("tag", ctypes.c_uint8 * 8),
        ("jited_size", ctypes.c_uint32),
        ("xlated_size", ctypes.c_uint32),
        ("jited", ctypes.c_uint64),
        ("xlated", ctypes.c_uint64),
    ]


class _Load(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("instructions", ctypes.c_uint64),
        ("license", ctypes.c_uint64),
        ("log_level", ctypes.c_uint32),
        ("log_size", ctypes.c_uint32),
        ("log", ctypes.c_uint64),
    ]


def prologue(allowed: list[Number], denied: list[Number]) -> bytes:
    """Instructions that allow reading and writing the character devices `allowed` and deny
    `denied`.

    Other accesses continue with the program that follows, with the context still in R1.
    """
    code = b""
    for major, minor in allowed + denied:
        answer = 1 if (major, minor) in allowed else 0
        steps = [
            (_LOAD_W, _R2, _R1, _ACCESS_TYPE, 0),
            (_AND_K, _R2, 0, 0, 0xFFFF),
            (_JUMP_NE, _R2, 0, _NEXT_NODE, _TYPE_CHAR),
            (_LOAD_W, _R2, _R1, _ACCESS_TYPE, 0),
            (_JUMP_SET, _R2, 0, _NEXT_NODE, _MKNOD << 16),
            (_LOAD_W, _R2, _R1, _MAJOR, 0),
            (_JUMP_NE, _R2, 0, _NEXT_NODE, major),
            (_LOAD_W, _R2, _R1, _MINOR, 0),
            (_JUMP_NE, _R2, 0, _NEXT_NODE, minor),
            (_MOV_K, _R0, 0, 0, answer),
            (_EXIT, 0, 0, 0, 0),
        ]
        for at, (operation, to, source, offset, value) in enumerate(steps, 1):
            # A jump counts from the instruction after it.
            offset = len(steps) - at if offset is _NEXT_NODE else offset
            code += struct.pack("=BBhi", operation, to | source << 4, offset, value)
    return code


def change(cgroup: str, allowed: list[Number], denied: list[Number]) -> None:
    """Put these rules before those of the cgroup at this path; a second call changes nothing.

    A cgroup without a program denies nothing. Raises OSError.
    """
    folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        ours = prologue(allowed, denied)
        for program_id in _attached(folder):
            # The id; the next id and flags are not used.
            old = syscalls.bpf(_PROG_GET_FD, (ctypes.c_uint32 * 3)(program_id))
            try:
                instructions = _instructions(old)
                if not instructions.startswith(ours):
                    _replace(folder, old, _load(ours + instructions))
            finally:
                os.close(old)
    finally:
        os.close(folder)


def try_to_load() -> None:
    """Load a program that allows everything, and drop it without attaching it.

    Raises OSError: this kernel has no device rules on cgroup v2, or refuses them.
    """
    steps = ((_MOV_K, _R0, 0, 0, 1), (_EXIT, 0, 0, 0, 0))
    code = [struct.pack("=BBhi", step[0], step[1] | step[2] << 4, *step[3:]) for step in steps]
    os.close(_load(b"".join(code)))


def _attached(folder: int) -> list[int]:
    ids = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    query = _Query(folder, _CGROUP_DEVICE, 0, 0, ctypes.addressof(ids), _MOST_PROGRAMS, 0)
    syscalls.bpf(_PROG_QUERY, query)
    return list(ids[: query.count])


def _instructions(program: int) -> bytes:
    """The program's instructions as the kernel returns them: for this type of program the verifier
    rewrites only unused parts.
    """
    info = _Info()
    call = _InfoCall(program, ctypes.sizeof(info), ctypes.addressof(info))
    syscalls.bpf(_OBJ_GET_INFO, call)
    code = ctypes.create_string_buffer(info.xlated_size)
    info = _Info(xlated_size=info.xlated_size, xlated=ctypes.addressof(code))
    call = _InfoCall(program, ctypes.sizeof(info), ctypes.addressof(info))
    syscalls.bpf(_OBJ_GET_INFO, call)
    if not info.xlated:
        raise PermissionError(1, "the kernel hides what BPF programs do")
    instructions = code.raw[: info.xlated_size]
    # A call or a map's address is returned in another form than it was loaded; no runtime uses them
    # here.
    if any(step in (_CALL, _LOAD_64) for step in instructions[::8]):
        raise NotImplementedError("a device program with calls or maps is attached")
    return instructions


def _load(instructions: bytes) -> int:
    code = ctypes.create_string_buffer(instructions, len(instructions))
    gpl, log = ctypes.create_string_buffer(b"GPL"), ctypes.create_string_buffer(_LOG_BYTES)
    return syscalls.bpf(
        _PROG_LOAD,
        _Load(
            _TYPE_CGROUP_DEVICE,
            len(instructions) // 8,
            ctypes.addressof(code),
            ctypes.addressof(gpl),
            1,
            _LOG_BYTES,
            ctypes.addressof(log),
        ),
    )


def _replace(folder: int, old: int, new: int) -> None:
    """Replace a program with the flags of the attached one: runtimes attach with ALLOW_MULTI."""
    try:
        flags = _ALLOW_MULTI | _REPLACE
        # Target, program, type, flags, the program that is replaced.
        order = (ctypes.c_uint32 * 5)(folder, new, _CGROUP_DEVICE, flags, old)
        syscalls.bpf(_PROG_ATTACH, order)
    finally:
        os.close(new)
