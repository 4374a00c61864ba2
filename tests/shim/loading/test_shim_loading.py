"""The library that a program gets, for any order of loading; and loading without pages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from shim.cuda_program import CALLS
from support.gpu.guest import BUILD, GIB, MIB, NVIDIA_SMI, SHIM, WORKLOAD, Guest, share
from vcuda_oci.pages import layout

CUDA, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
NOT_READY = 802  # CUDA_ERROR_SYSTEM_NOT_READY
NVML_UNKNOWN = 999  # NVML_ERROR_UNKNOWN


@pytest.mark.parametrize(
    "names",
    [[CUDA, NVML], [NVML, CUDA], [NVML, CUDA, NVML, CUDA]],
    ids=["CUDA is used first", "NVML is used first", "both, twice"],
)
def test_public_names_lead_to_the_shim_after_the_real_libraries_are_loaded(
    host, new_guest, client, names
):
    opened = new_guest(share(host.uuids[0], GIB)).json(client("loads"), *names)
    assert [(each["shim"], each["rc"]) for each in opened] == [(True, 0)] * len(names)


def test_versioned_names_and_paths_lead_to_the_shim(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB))
    paths = [os.path.join(guest.folder, "lib", name) for name in guest.public_names]
    opened = guest.json(client("loads"), *guest.public_names, *paths, *guest.public_names)
    assert all(each["shim"] and each["rc"] == 0 for each in opened)
    assert len({each["file"] for each in opened}) == 1


def damage(guest: Guest, page: str, how: str) -> None:
    path = os.path.join(guest.folder, page)
    if how == "missing":
        os.remove(path)
    elif how == "short":
        os.truncate(path, 100)
    else:
        offset, value = {"magic": (0, 1), "old version": (4, 0), "small": (8, 64)}[how]
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(value.to_bytes(4, "little"))


@pytest.mark.parametrize("page", ["limits", "usage"])
@pytest.mark.parametrize("how", ["missing", "short", "magic", "old version", "small"])
def test_without_sound_pages_nothing_reaches_the_driver(host, new_guest, client, page, how):
    guest = new_guest(share(host.uuids[0], GIB))
    damage(guest, page, how)
    process = guest.start(client("loads"), CUDA, NVML)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f'"rc": {NOT_READY}' in out
    assert f'"rc": {NVML_UNKNOWN}' in out
    assert err.count("\n") == 1
    assert f"'{page}'" in err


def test_client_without_pages_gets_system_not_ready(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB))
    damage(guest, "limits", "missing")
    process = guest.start(WORKLOAD, "info")
    out, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert out == ""
    assert "NOT_READY" in err or str(NOT_READY) in err


def test_no_environment_variable_moves_the_limits(host, new_guest):
    with open(os.path.join(BUILD, "lib", "libvcuda.so.1"), "rb") as shim:
        assert b"getenv" not in shim.read()


def test_nvidia_smi_runs_without_loading_cuda_and_shows_the_slice(host, new_guest):
    out = new_guest(share(host.uuids[0], 4 * GIB), share(host.uuids[1], GIB)).run(NVIDIA_SMI)
    memory = re.findall(r"(\d+) ?/ ?(\d+) ?MiB", out.replace("MiB /", "/"))
    assert memory == [("0", "4096"), ("0", "1024")]


FULL, NOT_FOUND = 2, 500
# What the client "mocked" finds on a slice of ten million bytes.
MOCKED = {
    "errno": 77,
    "pool": [0, 0, FULL],
    # The third was refused, so the pointer freed is the second one's.
    "left": 6_000_000,
    "pitched": 51_200,
    "too_wide": FULL,
    "missing": NOT_FOUND,
    "ours": {
        "cuInit": 1,
        "cuMemAlloc": 1,
        "cuMemFree": 1,
        "cuGetProcAddress": 1,
        "per_thread": 1,
        "future": 0,
    },
    "absent": 1,
}


@pytest.fixture
def mock_guest(new_mock_guest):
    return new_mock_guest(10_000_000)


def test_a_driver_that_calls_itself_is_charged_once_and_hands_out_the_shim(mock_guest, client):
    assert mock_guest.json(client("mocked"), "10000000") == MOCKED
    usage = mock_guest.read_usage()
    assert usage.newer_symbols == 1
    assert usage.export_table_ids == tuple(f"{last:02x}" + "00" * 15 for last in (5, 2, 3, 4))


def test_virtual_memory_is_charged_until_its_last_handle_and_mapping_end(mock_guest, client):
    assert mock_guest.json(client("virtual")) == {
        "1 two blocks": 2_000_000,
        "2 released but mapped": 2_000_000,
        "3 unmapped, one handle left": 6_000_000,
        "4 all gone": 10_000_000,
        "third": 2,
    }


def test_the_shim_in_place_of_its_own_driver_refuses_instead_of_calling_itself(
    host, new_guest, client
):
    guest = new_guest(share(host.uuids[0], GIB))
    for name in os.listdir(os.path.join(guest.folder, "driver")):
        path = os.path.join(guest.folder, "driver", name)
        os.remove(path)
        os.link(os.path.join(guest.folder, "lib", guest.public_names[0]), path)
    opened = guest.json(client("loads"), CUDA, NVML)
    assert [each["rc"] for each in opened] == [NOT_READY, NVML_UNKNOWN]


def test_a_page_of_a_newer_host_serves_this_shim(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB))
    for page in ("limits", "usage"):
        with open(os.path.join(guest.folder, page), "r+b") as file:
            file.seek(4)
            file.write((layout.ABI_VERSION + 1).to_bytes(4, "little"))
    assert guest.json(client("loads"), CUDA, NVML)[0]["rc"] == 0


def test_a_page_of_the_first_host_of_this_version_serves_this_shim(host, new_guest, client):
    """It wrote the fields of then, and zeros where there are more today."""
    guest = new_guest(share(host.uuids[0], GIB, 50))
    with open(
        os.path.join(os.path.dirname(__file__), os.pardir, "abi_v1.txt"), encoding="utf-8"
    ) as frozen:
        fields = [line.split() for line in frozen if ".reserved" not in line]
    path = os.path.join(guest.folder, "limits")
    with open(path, "rb") as file:
        today = file.read()
    then = bytearray(len(today))
    for name, offset, size in fields:
        table, field = name.split(".")
        start = {"limits": 0, "limits_gpu": 128}.get(table)
        if start is not None and field not in ("gpu", "whole"):
            place = slice(start + int(offset), start + int(offset) + int(size))
            then[place] = today[place]
    with open(path, "r+b") as file:
        file.write(then)
    assert guest.json(client("storm"), "1", "1", str(GIB // 4), "1") == [4]


# Opens the libraries of the folder, the large ones first, until the loader has no static TLS for
# either. Only then is libcuda opened, by cuInit.
WITHOUT_STATIC_TLS = (
    CALLS
    + """
import ctypes, glob, threading
refused = []
for size in ("256", "8"):
    for path in glob.glob(f"{sys.argv[1]}/{size}-*"):
        try:
            ctypes.CDLL(path)
        except OSError as error:
            assert "static TLS" in str(error), error
            refused.append(size)
            break
assert refused == ["256", "8"], refused
must(cu.cuInit(0))
device = must(cu.cuDeviceGet(0))
context = must(cu.cuDevicePrimaryCtxRetain(device))
answers = []
def allocate():
    must(cu.cuCtxSetCurrent(context))
    answers.append(cu.cuMemAlloc(400 << 20)[0].name)
allocate()
for _ in range(2):
    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
print(json.dumps([answers, must(cu.cuMemGetInfo())[0]]))
"""
)


def test_the_limit_holds_where_other_libraries_used_up_static_tls(host, new_guest, tmp_path):
    source = tmp_path / "used.c"
    source.write_text("__thread char used[SIZE]; char *use (void) { return used; }\n")
    for size in ("256", "8"):
        first = tmp_path / f"{size}-0"
        command = ["gcc", "-shared", "-fPIC", "-ftls-model=initial-exec", f"-DSIZE={size}"]
        subprocess.run([*command, "-o", str(first), str(source)], check=True)
        for number in range(1, 64):
            shutil.copy(first, tmp_path / f"{size}-{number}")
    answers, free = new_guest(share(host.uuids[0], GIB)).python(WITHOUT_STATIC_TLS, str(tmp_path))
    assert answers == ["CUDA_SUCCESS", "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"]
    assert free == GIB - 800 * MIB


def test_the_shim_asks_for_no_static_tls(built):
    command = ["readelf", "--dynamic", "--relocs", "--program-headers", "--version-info", "--wide"]
    shown = subprocess.run([*command, SHIM], check=True, capture_output=True, text=True).stdout
    assert re.search(r"^ +TLS ", shown, re.MULTILINE)
    assert len(re.findall("R_X86_64_TLSDESC ", shown)) == 1
    assert "STATIC_TLS" not in shown
    assert "TPOFF" not in shown
    assert "GLIBC_ABI_GNU2_TLS" not in shown  # a version that no glibc before 2.42 has
