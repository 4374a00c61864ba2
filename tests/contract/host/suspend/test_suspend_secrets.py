"""The memory of a suspended container: in no file, and in no reach of another container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import PRELUDE
from support.suspend.suspended import Node, answer_of, node

__all__ = ["node"]

# Holds a random pattern on the GPU, which no other process has ever had.
SECRET = """
context = start()
pattern = os.urandom(64)
memory = ok(cuda.cuMemAlloc(8 << 20))
ok(cuda.cuMemcpyHtoD(memory, pattern * (1 << 17), 8 << 20))
say(pattern=pattern.hex())
sys.stdin.read()
"""

# Of another container: looks into each process that it sees, and into the process of a number.
LOOKS = """
import ctypes, json, os, sys
pattern, stranger = bytes.fromhex(sys.stdin.readline()), int(sys.argv[1])
seen, hits = [int(name) for name in os.listdir("/proc") if name.isdigit()], 0
for pid in {*seen, stranger} - {os.getpid()}:
    for name in ("mem", "environ", "cmdline", "root/proc/self/mem"):
        try:
            hits += pattern in open(f"/proc/{pid}/{name}", "rb").read()
        except OSError:
            pass
libc = ctypes.CDLL(None, use_errno=True)
class Span(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
room = ctypes.create_string_buffer(64)
here, there = Span(ctypes.addressof(room), 64), Span(int(sys.argv[2]), 64)
got = libc.process_vm_readv(stranger, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
print(json.dumps([seen, hits, got]))
"""

# With its own /tmp and /dev/shm, below FOLDER.
PRIVATE = """
folder=$1; shift
again=$folder/tmp${folder#/tmp}
mkdir -p "$again" "$folder/shm"
mount --bind "$folder" "$again"
mount --bind "$folder/shm" /dev/shm
mount --rbind "$folder/tmp" /tmp
exec "$@"
"""


def test_suspended_memory_lies_in_no_file_and_no_other_container_reads_it(node: Node) -> None:
    box = node.box("box", 1)
    folder = str(node.folder)
    private = ["unshare", "-m", "--propagation", "private", "sh", "-c", PRIVATE, "sh", folder]
    holder = box.start_program([*private, sys.executable, "-c", PRELUDE + SECRET])
    box.bystanders.append(holder)
    pattern = bytes.fromhex(answer_of(holder)["pattern"])
    off = subprocess.run(
        [*private, *node.command("suspend", "box")], capture_output=True, text=True, check=False
    )
    assert (off.returncode, off.stderr) == (0, "")
    assert node.step("box") == "suspended"
    address = address_in(holder.pid, pattern)  # so it is searched for rightly
    files = [path for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink()]
    ours = [path for path in files if not path.is_relative_to(node.gpu.root)]
    assert {"usage", "limits", "events.jsonl"} <= {path.name for path in ours}
    assert [str(path) for path in ours if pattern in path.read_bytes()] == []
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c"]
    looked = subprocess.run(
        [*apart, LOOKS, str(holder.pid), str(address)],
        input=pattern.hex(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(looked.stdout) == [[1], 0, -1]
    assert node.vcuda("resume", "box").returncode == 0
    assert box.all_work()


def address_in(pid: int, pattern: bytes) -> int:
    """Where a process's memory has the pattern, read from outside by root."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            begin, end = (int(each, 16) for each in line.split()[0].split("-"))
            if " rw" not in line or "[v" in line:
                continue
            try:
                at = os.pread(memory.fileno(), end - begin, begin).find(pattern)
            except OSError:
                continue
            if at >= 0:
                return begin + at
    pytest.fail("the process does not hold its own secret")
