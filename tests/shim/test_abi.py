"""The two pages mean the same in C and in Python."""

from __future__ import annotations

import os
import subprocess

from shim.guest import BUILD, Gpu
from vcuda_oci import pages


def test_every_field_lies_where_the_c_compiler_puts_it(built):
    printed = subprocess.run(
        [os.path.join(BUILD, "abi_print")], capture_output=True, text=True, check=True
    ).stdout
    in_c = {}
    for line in printed.splitlines():
        name, offset, size = line.split()
        in_c[name] = (int(offset), int(size))
    assert {name: (offset, size) for name, offset, size in pages.offsets()} == in_c


def test_a_limits_page_reads_back_as_it_was_written():
    gpus = [
        Gpu("GPU-5f1c0a52-0000-4000-8000-000000000001", 4 << 30, 30, 60, 1, 300_000, 7),
        Gpu("GPU-5f1c0a52-0000-4000-8000-000000000002", 1, 100),
    ]
    page = pages.limits_page(gpus, "/usr/local/vcuda/driver")
    limits = pages.read_limits(page)
    assert len(page) == pages.LIMITS_SIZE
    assert limits.driver_dir == "/usr/local/vcuda/driver"
    assert [
        Gpu(**{name: getattr(gpu, name) for name in Gpu._fields}) for gpu in limits.gpus
    ] == gpus


def test_the_page_module_costs_the_start_path_no_import(built):
    code = (
        "before = set(sys.modules); import vcuda_oci.pages;"
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-c", "import sys; sys.path.insert(0, 'oci');" + code],
        capture_output=True,
        text=True,
        check=True,
        cwd=os.path.dirname(BUILD),
    ).stdout.split()
    assert set(loaded) == {"_struct", "struct", "vcuda_oci", "vcuda_oci.pages", "__future__"}
