"""Reading a container's files takes a bounded part of memory."""

from __future__ import annotations

import resource
import subprocess
from typing import Any

from support.files import ROOT, write
from vcuda_oci.guest import memory

# In a process of its own: another may have free memory already.
LOAD = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from vcuda_oci.container import bundle
from vcuda_oci.model.errors import VcudaError
before = resource.getrlimit(resource.RLIMIT_AS)
try:
    bundle.load_config(sys.argv[2])
except VcudaError as error:
    print(error)
print(resource.getrlimit(resource.RLIMIT_AS) == before)
"""


def test_a_config_that_is_small_as_text_and_large_as_a_tree_is_refused(tmp_path: Any) -> None:
    path = write(f"{tmp_path}/config.json", "[" + '{"":0},' * 2_300_000 + "0]")
    words = ["/usr/bin/python3", "-c", LOAD, f"{ROOT}/oci", path]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    line = f"{path}: takes more than 256 MiB to read; make it smaller"
    assert ran.stdout.splitlines() == [line, "True"]


def test_a_stricter_limit_of_the_caller_stays() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    strict = 1 << 40
    resource.setrlimit(resource.RLIMIT_AS, (strict, before[1]))
    try:
        with memory.BoundedMemory("x"):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] < strict
        assert resource.getrlimit(resource.RLIMIT_AS) == (strict, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
