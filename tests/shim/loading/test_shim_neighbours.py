"""No NVML function shows a container the processes of another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shim import unkind_nvml
from shim.conftest import LIBRARIES, Clients, DriverRoot
from support.gpu.guest import GIB, SHIM, WORKLOAD, Guest, share

UUID = "GPU-01010101-0101-0101-0101-010101010101"

# They return a setting of the GPU, or a pid's data in the container's own /proc.
HARMLESS = {
    "nvmlDeviceGetAccountingMode",
    "nvmlDeviceGetAccountingBufferSize",
    "nvmlSystemGetProcessName",
}


def test_no_function_of_the_header_shows_a_neighbours_process(
    client: Clients, tmp_path: Path
) -> None:
    found = unkind_nvml.functions(client.headers)
    assert len(found) >= 30
    libraries = tmp_path / "root" / LIBRARIES
    libraries.mkdir(parents=True)
    driver, program = libraries / "libnvidia-ml.so.1", tmp_path / "asks"
    flags = ("-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")
    source = unkind_nvml.driver_source(found, UUID)
    unkind_nvml.build(source, driver, client.headers, *flags)
    source = unkind_nvml.client_source(found, client.headers)
    unkind_nvml.build(source, program, client.headers, "-Wl,--no-as-needed", "-xnone", SHIM)
    guest = Guest(str(tmp_path / "guest"), str(tmp_path / "root"), [share(UUID, GIB)])
    guest_libraries = os.path.join(guest.folder, "lib")
    # The program is linked against the shim by its first soname.
    os.link(
        os.path.join(guest_libraries, driver.name), os.path.join(guest_libraries, "libcuda.so.1")
    )
    asked = [line.split() for line in guest.run(str(program)).splitlines()]
    assert {name for name, _, _ in asked} == set(found)
    assert {name for name, shown, _ in asked if shown == "1"} == HARMLESS


@pytest.fixture
def holders(host: DriverRoot, new_guest: Callable[..., Guest]) -> Iterator[tuple[Guest, list[int]]]:
    """A container of two processes that hold memory, beside a neighbour that does; its pids."""
    guest, neighbour = (new_guest(share(host.uuids[0], 3 * GIB, 30)) for _ in range(2))
    processes = [
        each.start(WORKLOAD, "hold", "--bytes", str(GIB), "--seconds", "60")
        for each in (guest, guest, neighbour)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline()
    yield guest, sorted(process.pid for process in processes[:2])
    for process in processes:
        process.kill()
        process.communicate()


# Each list of processes by pynvml: its pids, or the error.
LISTS = """
import json
import pynvml as nv
nv.nvmlInit()
gpu = nv.nvmlDeviceGetHandleByIndex(0)
answers = {}
for kind in ("Compute", "Graphics", "MPSCompute"):
    for version in ("", "_v2", "_v3"):
        name = f"nvmlDeviceGet{kind}RunningProcesses{version}"
        answers[name] = [process.pid for process in getattr(nv, name)(gpu)]
for mode in (nv.NVML_PROCESS_MODE_COMPUTE, nv.NVML_PROCESS_MODE_GRAPHICS, nv.NVML_PROCESS_MODE_MPS):
    details = nv.nvmlDeviceGetRunningProcessDetailList(gpu, nv.nvmlProcessDetailList_v1, mode)
    answers[f"detail {mode}"] = [process.pid for process in details]
questions = {"ProcessUtilization": [0], "AccountingPids": [], "EncoderSessions": []}
for name, arguments in questions.items():
    try:
        answers[name] = len(getattr(nv, "nvmlDeviceGet" + name)(gpu, *arguments))
    except nv.NVMLError as error:
        answers[name] = str(error)
print(json.dumps(answers))
"""


def test_every_list_of_processes_shows_the_containers_own(
    holders: tuple[Guest, list[int]],
) -> None:
    guest, own = holders
    lists = guest.python(LISTS)
    refused = {name: lists.pop(name) for name in list(lists) if isinstance(lists[name], str)}
    assert refused == dict.fromkeys(
        ("ProcessUtilization", "AccountingPids", "EncoderSessions"), "Not Supported"
    )
    compute = {name: sorted(pids) for name, pids in lists.items() if pids}
    assert compute == {
        "nvmlDeviceGetComputeRunningProcesses": own,
        "nvmlDeviceGetComputeRunningProcesses_v2": own,
        "nvmlDeviceGetComputeRunningProcesses_v3": own,
        "detail 0": own,
    }


ON_THE_FIRST = """
import json
import pynvml as nv
nv.nvmlInit()
gpu = nv.nvmlDeviceGetHandleByIndex(0)
print(json.dumps([nv.nvmlDeviceGetUUID(gpu), nv.nvmlDeviceGetMemoryInfo(gpu).used > 0,
                  len(nv.nvmlDeviceGetComputeRunningProcesses(gpu))]))
"""


def test_no_process_is_listed_on_a_gpu_without_a_share(
    host: DriverRoot, new_guest: Callable[..., Guest]
) -> None:
    first, second = host.uuids
    guest, neighbour = new_guest(share(second, GIB)), new_guest(share(first, 3 * GIB))
    holder = neighbour.start(WORKLOAD, "hold", "--bytes", str(GIB), "--seconds", "60")
    assert holder.stdout is not None and holder.stdout.readline()
    seen = guest.python(ON_THE_FIRST)
    holder.kill()
    holder.communicate()
    assert seen == [first, True, 0]


# The private table: which of its functions are there, and how its list deals with room.
TABLE = """
import ctypes, json
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
device = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
table = ctypes.POINTER(ctypes.c_uint64)()
known = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
ask = nvml.nvmlInternalGetExportTable
codes = [ask(ctypes.byref(table), bytes(16)), ask(None, known), ask(ctypes.byref(table), None)]
codes.append(ask(ctypes.byref(table), known))
there = [slot for slot in range(1, table[0] // 8) if table[slot]]
listing = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
entries, count = ctypes.create_string_buffer(3 * 4128), ctypes.c_uint()
def ask_for(slot, room, into=entries):
    count.value = room
    return [listing(table[slot])(device, ctypes.byref(count), into), count.value]
rooms = [ask_for(213, 0, None), ask_for(213, 1), ask_for(213, 3), ask_for(214, 3), ask_for(215, 0)]
rooms.append([listing(table[213])(None, ctypes.byref(count), entries), 0])
print(json.dumps([codes, there, rooms]))
"""

INVALID_ARGUMENT, INSUFFICIENT_SIZE = 2, 7


def test_the_private_table_has_what_names_no_process_and_the_containers_own_list(
    holders: tuple[Guest, list[int]],
) -> None:
    codes, there, rooms = holders[0].python(TABLE)
    assert codes == [INVALID_ARGUMENT] * 3 + [0]
    assert there == [23, 72, 81, 213, 214, 215, 230, 249]
    assert rooms == [
        [INSUFFICIENT_SIZE, 2],
        [INSUFFICIENT_SIZE, 2],
        [0, 2],
        [0, 0],
        [0, 0],
        [INVALID_ARGUMENT, 0],
    ]


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_without_pages_no_private_table_is_handed_out(
    host: DriverRoot, new_guest: Callable[..., Guest], library: str
) -> None:
    guest = new_guest(share(host.uuids[0], GIB))
    os.remove(guest.limits)
    code = f"""
import ctypes
table, shim = ctypes.c_void_p(), ctypes.CDLL("{library}")
known = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
print([shim.nvmlInternalGetExportTable(ctypes.byref(table), known), table.value or 0,
       shim.nvmlDeviceGetAccountingPids(None, None, None)])
"""
    unknown = 999
    assert guest.python(code) == [unknown, 0, unknown]
