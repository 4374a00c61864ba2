"""The shim for arm64, cross-compiled and run in the emulator, behaves as the one for amd64."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from shim.bounds.test_shim_leaks import ON_THE_MOCK, TWO_OF_THREE
from shim.conftest import Clients
from shim.gate_guest import check_passed, make_driver, make_guest
from shim.loading.test_shim_loading import MOCKED
from support.files import ROOT
from support.gpu import guest
from support.gpu.guest import GIB
from support.host.arm64 import CC, EMULATOR, make

SHIM = os.path.join(guest.BUILD, "arm64", "lib", "libvcuda.so.1")
EMULATED = (EMULATOR, "-L", "/usr/aarch64-linux-gnu")


@pytest.fixture(scope="module")
def arm64() -> str:
    make(os.path.relpath(SHIM, ROOT))
    return SHIM


@pytest.fixture(scope="module")
def arm64_client(arm64, tmp_path_factory):
    return Clients(str(tmp_path_factory.mktemp("arm64")), cc=CC, shim=arm64)


@pytest.fixture
def arm64_guest(arm64, new_mock_guest):
    return new_mock_guest(GIB, arm64, CC)


def exported(shim: str) -> set[str]:
    words = ["aarch64-linux-gnu-nm", "--dynamic", "--defined-only", "--format=posix", shim]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines()}


def test_it_exports_what_the_one_for_amd64_does(arm64):
    assert len(exported(arm64)) > 1000
    assert exported(arm64) == exported(guest.SHIM)


def test_it_needs_the_first_glibc_that_its_machines_had(arm64):
    words = ["aarch64-linux-gnu-objdump", "--dynamic-syms", arm64]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"GLIBC_[\d.]+", listed)) == {"GLIBC_2.17"}


@pytest.mark.parametrize("family", ON_THE_MOCK)
def test_two_of_three_pieces_fit(arm64_guest, arm64_client, family):
    assert arm64_guest.json(*EMULATED, arm64_client("leaks"), family, str(GIB)) == TWO_OF_THREE


def test_a_driver_that_calls_itself_is_charged_once_and_hands_out_the_shim(
    arm64, new_mock_guest, arm64_client
):
    guest = new_mock_guest(10_000_000, arm64, CC)
    assert guest.json(*EMULATED, arm64_client("mocked"), "10000000") == MOCKED
    assert guest.read_usage().newer_symbols == 1


def test_sizes_beyond_every_memory_are_refused_in_each_family(arm64_guest, arm64_client):
    assert arm64_guest.json(*EMULATED, arm64_client("huge")) == [2] * 8


@pytest.fixture(scope="module")
def arm64_driver(arm64_client, tmp_path_factory):
    return make_driver(tmp_path_factory.mktemp("driver"), arm64_client.headers, CC)


@pytest.mark.parametrize("calls_ask", [True, False], ids=["calls ask", "calls do not ask"])
def test_each_passed_function_has_its_arguments_and_is_counted_if_calls_ask(
    arm64, arm64_driver, arm64_client, tmp_path, calls_ask
):
    guest = make_guest(tmp_path, arm64_driver, calls_ask, arm64)
    gated = [*EMULATED, arm64_client("gated")]
    check_passed(guest, gated, tmp_path / "names", arm64_client.headers)


@pytest.mark.parametrize(("how", "seen"), [("exits", "1\n"), ("jumps", "1\n"), ("forks", "1 1\n")])
def test_a_call_that_does_not_return_counts_no_further_call(
    arm64, arm64_driver, arm64_client, tmp_path, how, seen
):
    guest = make_guest(tmp_path, arm64_driver, shim=arm64)
    assert guest.run(*EMULATED, arm64_client("gated"), how) == seen


def test_the_pages_are_laid_out_as_on_amd64(tmp_path):
    """So Python, and a container's usage page that is read elsewhere, mean the same."""
    program = str(tmp_path / "abi_print")
    source = os.path.join(ROOT, "libvcuda", "abi_print.c")
    subprocess.run([CC, "-static", "-Ilibvcuda", "-o", program, source], cwd=ROOT, check=True)
    printed = [
        subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for words in ([EMULATOR, program], [os.path.join(guest.BUILD, "abi_print")])
    ]
    assert printed[0] == printed[1]
    assert "limits.magic 0 4" in printed[0]
