"""Untrusted bytes in both pages: the shim's own code under libFuzzer, and the host's readers.

`make fuzz SECONDS=600` goes on from the same corpus.
"""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.files import ROOT
from support.gpu.guest import BUILD
from support.makefile import make
from vcuda_oci.pages import layout, page_reader

CORPUS = os.path.join(ROOT, "tests", "shim", "fuzz", "corpus")
RUNS = 4_000


@pytest.fixture(scope="session")
def target(built: None) -> str:
    make("build/fuzz/pages")
    return os.path.join(BUILD, "fuzz", "pages")


def test_no_bytes_in_the_pages_crash_the_shim_hang_it_or_lift_its_limit(target, tmp_path):
    found = tmp_path / "found"
    found.mkdir()
    options = [f"-runs={RUNS}", "-max_len=400", "-timeout=20", "-detect_leaks=0", "-seed=1"]
    command = [target, *options, "-print_final_stats=1", f"-artifact_prefix={found}/", str(found)]
    done = subprocess.run([*command, CORPUS], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    runs = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    assert runs
    assert int(runs[1]) >= RUNS


def page_with(empty: bytes, size: int, noise: bytes, at: int) -> bytes:
    page = bytearray(empty.ljust(size, b"\0"))
    page[at : at + len(noise)] = noise
    return bytes(page)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, layout.LIMITS_SIZE), st.integers(0, 2))
@example(b"\xff" * 200, 0, 0)
@example(b"\xff" * 4, 12, 0)
def test_the_host_reads_any_limits_or_says_that_they_are_no_page(noise, at, short):
    page = page_with(layout.limits_page([]), layout.LIMITS_SIZE, noise, at)
    try:
        limits = page_reader.read_limits(page[: len(page) - short])
    except ValueError as refusal:
        assert re.fullmatch(r"limits page has .+", str(refusal))
    else:
        assert len(limits.gpus) <= layout.MAX_GPUS


@settings(max_examples=300)
@given(
    st.binary(max_size=400),
    st.integers(0, layout.USAGE_SIZE),
    st.sets(st.integers(0, layout.MAX_PROCESSES - 1)),
)
@example(b"\xff" * 400, 0, {0})
@example(b"\xff" * 4, 12, set(range(layout.MAX_PROCESSES)))
def test_the_host_counts_no_dead_process_whatever_the_usage_says(noise, at, live):
    page = page_with(layout.empty_usage_page(), layout.USAGE_SIZE, noise, at)
    try:
        usage = page_reader.read_usage(page, frozenset(live))
    except ValueError as refusal:
        assert re.fullmatch(r"usage page has .+", str(refusal))
        return
    assert {process.slot for process in usage.processes} <= live
    for gpu in range(layout.MAX_GPUS):
        held = sum(process.held_bytes[gpu] for process in usage.processes)
        # A slot without a pid counts too: bytes are never lost by a forged pid.
        assert usage.gpus[gpu].held_bytes >= held
        assert live or usage.gpus[gpu].held_bytes == 0
