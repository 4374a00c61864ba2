"""The tests' heap in huge pages: it has them, or the kernel offers none."""

from __future__ import annotations

import os
import subprocess
import sys

from support.files import ROOT

LOOK = """
import sys
sys.path.insert(0, sys.argv[1])
from support.host import huge_pages
kept = [bytes(1000) for _ in range(64000)]
accepted = huge_pages.use()
with open("/proc/self/smaps_rollup") as lines:
    (huge,) = [int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages:")]
print(accepted, huge)
"""


def test_heap_lies_in_huge_pages_where_the_kernel_accepts_it() -> None:
    words = [sys.executable, "-ISc", LOOK, f"{ROOT}/tests"]
    accepted, huge = map(int, subprocess.check_output(words, text=True).split())
    assert huge >= accepted // 2
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    assert accepted >= 32 << 20 or release < (6, 1)
