"""Constants and layouts of system calls equal the kernel's headers on both machines."""

from __future__ import annotations

import fcntl
import struct
import subprocess
from typing import Any

import pytest

from support.files import write
from support.host import arm64
from vcuda_hook.hooks import syscalls
from vcuda_oci.pages import page_reader

MACHINES = pytest.mark.parametrize(
    ("machine", "cc"), [("x86_64", "gcc"), ("aarch64", arm64.CC)], ids=["amd64", "arm64"]
)


def defined(cc: str, *headers: str) -> dict[str, str]:
    text = "".join(f"#include <{header}>\n" for header in headers)
    words = [cc, "-D_GNU_SOURCE", "-E", "-dM", "-"]
    result = subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout
    pairs = [line.split(maxsplit=2)[1:] for line in result.splitlines()]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


@MACHINES
def test_each_system_call_has_its_number(machine: str, cc: str) -> None:
    numbers = {
        "open_tree": syscalls._OPEN_TREE,
        "move_mount": syscalls._MOVE_MOUNT,
        "openat2": syscalls._OPENAT2,
        "mount_setattr": syscalls._MOUNT_SETATTR,
        "bpf": syscalls._BPF[machine],
    }
    found = defined(cc, "sys/syscall.h")
    assert {name: int(found[f"__NR_{name}"]) for name in numbers} == numbers


@MACHINES
def test_a_lock_is_asked_for_as_the_kernel_lays_it_out(
    machine: str, cc: str, tmp_path: Any
) -> None:
    """The struct as live_slots packs it, with a number of its own in each place."""
    packed = struct.pack("hhqqi4x", fcntl.F_WRLCK, 2, 3, 4, 5)
    offsets = {
        name: packed.index(value.to_bytes(size, "little"))
        for name, value, size in (("whence", 2, 2), ("start", 3, 8), ("len", 4, 8), ("pid", 5, 4))
    }
    lines = [f"offsetof(struct flock, l_{name}) == {at}" for name, at in offsets.items()]
    lines += [f"sizeof(struct flock) == {len(packed)}", f"F_WRLCK == {fcntl.F_WRLCK}"]
    lines += [f"F_UNLCK == {fcntl.F_UNLCK}", f"F_OFD_GETLK == {page_reader.F_OFD_GETLK}"]
    text = "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <stddef.h>\n"
    text += "".join(f'_Static_assert({line}, "{line}");\n' for line in lines)
    source = write(f"{tmp_path}/lock.c", text)
    built = subprocess.run([cc, "-c", "-o", source + ".o", source], capture_output=True, text=True)
    assert built.stderr == ""
