"""The layouts of the two pages are equal in C and in Python."""

from __future__ import annotations

import os
import subprocess

from support.guest import BUILD, Gpu
from vcuda_oci.pages import layout, page_reader


def test_every_field_lies_where_the_c_compiler_puts_it(built):
    printed = subprocess.run(
        [os.path.join(BUILD, "abi_print")], capture_output=True, text=True, check=True
    ).stdout
    assert {name: (offset, size) for name, offset, size in layout.offsets()} == fields(printed)


def fields(text: str) -> dict[str, tuple[int, int]]:
    found = {}
    for line in text.splitlines():
        name, offset, size = line.split()
        found[name] = (int(offset), int(size))
    return found


def test_no_field_of_version_1_has_moved(built):
    """Running containers retain the shim that they started with over upgrades of the host."""
    with open(os.path.join(os.path.dirname(__file__), "abi_v1.txt"), encoding="utf-8") as frozen:
        then = fields(frozen.read())
    now = {name: (offset, size) for name, offset, size in layout.offsets()}
    named = {name: place for name, place in then.items() if not name.endswith(".reserved")}
    assert {name: now.get(name) for name in named} == named
    # New fields are in formerly reserved space.
    for name, (offset, size) in now.items():
        if name not in then:
            start, room = then[name.split(".")[0] + ".reserved"]
            assert start <= offset
            assert offset + size <= start + room


def test_a_limits_page_reads_back_as_it_was_written():
    gpus = [
        Gpu(
            "GPU-5f1c0a52-0000-4000-8000-000000000001",
            4 << 30,
            30,
            60,
            1,
            300_000,
            7,
            1,
            5 << 30,
            1,
        ),
        Gpu("GPU-5f1c0a52-0000-4000-8000-000000000002", 1, 100),
    ]
    page = layout.limits_page(gpus, "/usr/local/vcuda/driver", True)
    limits = page_reader.read_limits(page)
    assert len(page) == layout.LIMITS_SIZE
    assert limits.driver_dir == "/usr/local/vcuda/driver"
    assert limits.meter_copies
    assert [
        Gpu(**{name: getattr(gpu, name) for name in Gpu._fields}) for gpu in limits.gpus
    ] == gpus


def test_normal_latency_leaves_the_formerly_reserved_bytes_zero():
    """A shim or keeper of before sees no difference."""
    at = {name: offset for name, offset, _ in layout.offsets()}
    places = slice(*(at["limits.gpu"] + at["limits_gpu.latency"] + size for size in (0, 4)))
    pages = [layout.limits_page([Gpu("GPU-0", 1, 30, latency=latency)]) for latency in (0, 1)]
    assert [page[places] for page in pages] == [b"\0\0\0\0", b"\1\0\0\0"]


def test_the_page_module_costs_the_start_path_no_import(built):
    code = (
        "before = set(sys.modules); import vcuda_oci.pages.layout;"
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-c", "import sys; sys.path.insert(0, 'oci');" + code],
        capture_output=True,
        text=True,
        check=True,
        cwd=os.path.dirname(BUILD),
    ).stdout.split()
    ours = {"vcuda_oci", "vcuda_oci.pages", "vcuda_oci.pages.layout"}
    assert set(loaded) == {"_struct", "struct", "__future__", *ours}
