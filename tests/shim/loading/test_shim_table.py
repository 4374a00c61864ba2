"""The table: every entry point of the headers has a rule and is exported, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.files import ROOT
from support.gpu.guest import BUILD, SHIM

sys.path.insert(0, os.path.join(ROOT, "libvcuda"))

from generate import headers, policy

POLICY = os.path.join(ROOT, "libvcuda", "policy.list")


def headers_of(package: str) -> str:
    folder = os.path.join(BUILD, "venv", "lib")
    python = next(name for name in sorted(os.listdir(folder)) if name.startswith("python3"))
    return os.path.join(folder, python, "site-packages", "nvidia", package, "include")


def typedef_bases(include: str) -> set[str]:
    """Base names of every function type in cudaTypedefs.h: names for cuGetProcAddress."""
    with open(os.path.join(include, "cudaTypedefs.h"), encoding="utf-8") as typedefs:
        return {base for base, _ in headers.TYPEDEF.findall(typedefs.read())}


@pytest.fixture(scope="module")
def include() -> str:
    return headers_of("cu13")


@pytest.fixture(scope="module")
def entries(include):
    return headers.all_entries(include, os.path.join(ROOT, "libvcuda"), "gcc")


@pytest.fixture(scope="module")
def exports(built):
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", SHIM], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1] for line in listing.splitlines()}


def test_every_known_entry_point_is_exported_and_nothing_else(entries, exports):
    rules = policy.assign(entries, policy.read(POLICY))
    left_out = {name for name, rule in rules.items() if rule.kind == policy.ABSENT}
    assert exports == {entry.name for entry in entries} - left_out
    assert left_out == {entry.name for entry in entries if entry.name.startswith("cudbg")}


def test_every_entry_point_of_the_12_x_headers_is_exported(exports):
    older = headers.cuda_entries(headers_of("cuda_runtime"), "gcc")
    older += headers.nvml_entries(headers_of("nvml_dev"), "gcc")
    assert len(older) > 900
    assert {entry.name for entry in older} <= exports


def test_every_function_type_of_the_12_x_toolkit_has_an_entry(entries):
    older = typedef_bases(headers_of("cuda_runtime"))
    assert older <= {entry.base for entry in entries}


@pytest.mark.parametrize(
    "name",
    [
        "cuMemAlloc",
        "cuMemAlloc_v2",
        "cuMemcpyHtoD",
        "cuMemcpyHtoD_v2",
        "cuMemcpyHtoD_v2_ptds",
        "cuLaunchKernel",
        "cuLaunchKernel_ptsz",
        "cuGetProcAddress",
        "cuGetProcAddress_v2",
        "cuMemAllocAsync_ptsz",
        "cuCtxCreate_v4",
        "cuProfilerStart",
        "cuGLGetDevices_v2",
        "nvmlInit",
        "nvmlInit_v2",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ],
)
def test_old_new_and_per_thread_names_are_there(exports, name):
    assert name in exports


def test_every_function_type_of_the_toolkit_has_an_entry(include, entries):
    assert typedef_bases(include) <= {entry.base for entry in entries}


def test_an_entry_point_on_no_list_is_an_error(entries):
    rules = policy.read(POLICY)
    policy.assign(entries, rules)
    with pytest.raises(policy.PolicyError, match="cuMemAllocNew"):
        policy.assign([*entries, headers.Entry("cuMemAllocNew", "cuda", True)], rules)


@pytest.mark.parametrize(
    "name",
    [
        # Versions of functions with a policy.
        "cuMemAlloc_v3",
        "cuCtxCreate_v9",
        "cuDevicePrimaryCtxRetain_v9",
        "cuGraphLaunch_v9",
        # Families of which some functions get memory, or start work.
        "cuArrayNew_ptsz",
        "cuMipmappedArrayNew",
        "cuMulticastNew",
        "cuIpcOpenNew",
        "cuExternalMemoryNew",
        "cuGraphInstantiateNew",
        "cuStreamLaunchNew",
        "cuModuleLoadNew",
        "cuLibraryLoadNew",
        "cuLogicalEndpointAllocNew",
    ],
)
def test_no_wildcard_passes_what_may_get_memory_or_start_work(entries, name):
    rules = policy.read(POLICY)
    with pytest.raises(policy.PolicyError, match=f"on no list: {name};"):
        policy.assign([*entries, headers.Entry(name, "cuda", typed=True)], rules)


# What a list of processes would be called next.
NEWER_LISTS = [
    "nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v4(nvmlDevice_t device, int *n);",
    "typedef struct { unsigned int pid; } new_t; nvmlReturn_t nvmlDeviceGetNew(new_t *answer);",
    "typedef struct { int a; unsigned int pids[8]; } a_t; typedef a_t b_t;"
    "typedef struct { b_t *deep; } c_t; nvmlReturn_t nvmlDeviceGetDeep(c_t *answer);",
]


@pytest.mark.parametrize("text", NEWER_LISTS, ids=["by name", "by a member", "by a type in a type"])
def test_a_new_function_that_shows_processes_is_an_error(entries, text):
    (name,) = headers.showing_processes(text)
    new = headers.Entry(name, "nvml", True, True)
    with pytest.raises(policy.PolicyError) as refused:
        policy.assign([*entries, new], policy.read(POLICY))
    assert f"on no list: {name};" in str(refused.value)


def test_the_shim_loads_with_c_libraries_since_glibc_2_17(built):
    listing = subprocess.run(
        ["objdump", "-T", SHIM], capture_output=True, text=True, check=True
    ).stdout
    versions = {
        tuple(int(part) for part in word.strip("()").split("_")[1].split("."))
        for word in listing.split()
        if word.strip("()").startswith("GLIBC_2")
    }
    assert max(versions) <= (2, 17)
