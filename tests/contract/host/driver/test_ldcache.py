"""ld.so.cache is read as ldconfig prints it; any other content is refused."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.gpu.driver_layouts import LAYOUTS, LDCONFIG, install
from support.needed import skip_or_fail
from vcuda_oci.system import ldcache

EVERY = ("",)
X86_64 = (ldcache.X86_64,)


def printed(root: str = "/") -> list[tuple[str, str]]:
    """ldconfig's own list of a cache's entries for x86-64."""
    text = subprocess.run([LDCONFIG, "-r", root, "-p"], check=True, capture_output=True, text=True)
    lines = [line.strip().split(" => ") for line in text.stdout.splitlines()]
    pairs = [line for line in lines if len(line) == 2 and "x86-64" in line[0]]
    return [(entry.split(" (")[0], path) for entry, path in pairs]


def libraries(content: bytes, *wanted: tuple[Any, ...]) -> list[tuple[str, str]]:
    return list(ldcache.entries(content, *wanted))


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def test_the_hosts_own_cache_is_read_as_ldconfig_prints_it() -> None:
    if not os.path.exists("/etc/ld.so.cache"):
        skip_or_fail("this host keeps no cache")
    expected = printed()
    assert expected
    assert libraries(read("/etc/ld.so.cache"), EVERY, X86_64) == expected


@pytest.mark.parametrize("format", ["new", "compat"])
def test_both_formats_that_hold_the_new_table_are_read(tmp_path: Any, format: str) -> None:
    root = install(tmp_path, LAYOUTS["Ubuntu"])
    subprocess.run([LDCONFIG, "-c", format, "-r", root.path], check=True, capture_output=True)
    content = read(root.path + "/etc/ld.so.cache")
    assert content.startswith(ldcache.MAGIC) == (format == "new")
    assert libraries(content, EVERY, X86_64) == printed(root.path)
    assert libraries(content, ("libGLX_nvidia.so.0",), (ldcache.I386,)) == []
    narrow = libraries(content, ("libGLX_nvidia.so.",), (ldcache.I386,))
    assert {os.path.dirname(path) for _, path in narrow} == {"/usr/lib/i386-linux-gnu"}


def test_a_cache_of_only_the_old_format_is_ignored(tmp_path: Any) -> None:
    root = install(tmp_path, LAYOUTS["Ubuntu"])
    subprocess.run([LDCONFIG, "-c", "old", "-r", root.path], check=True, capture_output=True)
    assert libraries(read(root.path + "/etc/ld.so.cache"), EVERY, X86_64) == []


STRINGS = b"libcuda.so.1\0/l\0"


def one_entry(key: int, value: int, count: int = 1, strings: bytes = STRINGS) -> bytes:
    numbers = [count, len(strings), 0, 0, 0, 0, 0, 0x0303, key, value, 0, 0, 0]
    return ldcache.MAGIC + b"".join(n.to_bytes(4, "little") for n in numbers) + strings


def test_cache_entries_outside_the_strings_are_ignored() -> None:
    assert len(one_entry(0, 0, strings=b"")) == 72
    right = [("libcuda.so.1", "/l")]
    assert libraries(one_entry(72, 85), EVERY, X86_64) == right
    # The largest possible count: only entries inside the file are read.
    assert libraries(one_entry(72, 85, 0xFFFFFFFF), EVERY, X86_64) == right
    for key, value in ((72, 0xFFFFFFFF), (0xFFFFFFFF, 85), (72, 72), (85, 85), (72, 86)):
        assert libraries(one_entry(key, value), EVERY, X86_64) == []
    for strings in (b"libcuda.so.1\0/\xff\0", b"libcuda.so.1\0/l"):
        assert libraries(one_entry(72, 85, strings=strings), EVERY, X86_64) == []


@given(st.binary(max_size=200), st.integers(0, 100))
def test_any_bytes_at_all_are_an_answer(content: bytes, cut: int) -> None:
    for hostile in (content, ldcache.MAGIC + content, one_entry(72, 85)[:cut] + content):
        for name, path in libraries(hostile, EVERY, X86_64):
            assert path.startswith("/") and "/" not in name
