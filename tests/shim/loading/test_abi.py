"""The layouts of the two pages are equal in C and in Python."""

from __future__ import annotations

import os
import struct
import subprocess

import pytest

from support.gpu.guest import BUILD, share
from vcuda_oci.pages import layout, page_reader, suspended_word


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
    with open(
        os.path.join(os.path.dirname(__file__), os.pardir, "abi_v1.txt"), encoding="utf-8"
    ) as frozen:
        then = fields(frozen.read())
    now = {name: (offset, size) for name, offset, size in layout.offsets()}
    # Version 1 had one more unused word, beside those named "reserved".
    spare = {"usage_slot.calls_inside": then.pop("usage_slot.padding")}
    named = {name: place for name, place in then.items() if not name.endswith(".reserved")}
    assert {name: now.get(name) for name in named} == named
    # New fields are in formerly reserved space.
    for name, (offset, size) in now.items():
        if name not in then:
            start, room = spare.get(name) or then[name.split(".")[0] + ".reserved"]
            assert start <= offset
            assert offset + size <= start + room


def test_a_limits_page_reads_back_as_it_was_written():
    gpus = [
        layout.LimitsGpu(
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
            40,
        ),
        share("GPU-5f1c0a52-0000-4000-8000-000000000002", 1, 100),
    ]
    page = layout.limits_page(gpus, meter_copies=True)
    limits = page_reader.read_limits(page)
    assert len(page) == layout.LIMITS_SIZE
    assert limits.driver_dir == "/usr/local/vcuda/driver"
    assert limits.meter_copies
    assert [gpu.__dict__ for gpu in limits.gpus] == [gpu.__dict__ for gpu in gpus]


def test_a_new_container_is_awake_and_its_calls_ask_only_if_told():
    asks = page_reader.read_limits(layout.limits_page([], calls_ask=True))
    silent = page_reader.read_limits(layout.limits_page([]))
    assert (asks.suspended, asks.calls_ask) == (layout.AWAKE, True)
    assert (silent.suspended, silent.calls_ask) == (layout.AWAKE, False)


@pytest.mark.parametrize("state", [layout.AWAKE, layout.SUSPENDED, layout.UNTIL_CALL])
def test_a_suspension_reads_back_as_the_host_wrote_it(state):
    page = bytearray(layout.limits_page([]))
    at = offset_of("limits.suspended")
    page[at : at + 4] = struct.pack("=I", state)
    assert page_reader.read_limits(bytes(page)).suspended == state


def test_calls_inside_and_asked_resumes_read_back_as_the_shim_wrote_them():
    page = bytearray(layout.empty_usage_page().ljust(layout.USAGE_SIZE, b"\0"))
    slot = offset_of("usage.slot") + layout.USAGE_SLOT_SIZE
    for at, value in (
        (offset_of("usage.slots_used"), 2),
        (offset_of("usage.resume_asked"), 7),
        (slot + offset_of("usage_slot.pid"), 41),
        (slot + offset_of("usage_slot.calls_inside"), 3),
    ):
        page[at : at + 4] = struct.pack("=I", value)
    usage = page_reader.read_usage(bytes(page))
    assert usage.resume_asked == 7
    assert [(process.pid, process.calls_inside) for process in usage.processes] == [(41, 3)]


def test_the_end_of_a_suspension_is_counted_once(tmp_path):
    path = tmp_path / "limits"
    path.write_bytes(layout.limits_page([]))
    seen = []
    with open(path, "r+b", buffering=0) as page:
        for state in (layout.AWAKE, layout.UNTIL_CALL, layout.SUSPENDED, layout.AWAKE):
            suspended_word.write(page.fileno(), state)
            limits = page_reader.read_limits(path.read_bytes())
            seen.append((limits.suspended, limits.suspensions))
    assert seen == [(0, 0), (2, 0), (1, 0), (0, 1)]


def offset_of(field: str) -> int:
    return {name: offset for name, offset, _ in layout.offsets()}[field]


def test_normal_latency_leaves_the_formerly_reserved_bytes_zero():
    """A shim or keeper of before sees no difference."""
    at = {name: offset for name, offset, _ in layout.offsets()}
    places = slice(*(at["limits.gpu"] + at["limits_gpu.latency"] + size for size in (0, 4)))
    pages = [layout.limits_page([share("GPU-0", 1, 30, latency=latency)]) for latency in (0, 1)]
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
    ours |= {"vcuda_oci.model", "vcuda_oci.model.names"}  # which every start loads
    assert set(loaded) == {"_struct", "struct", "__future__", *ours}
