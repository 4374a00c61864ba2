"""Every way to allocate device memory is limited."""

from __future__ import annotations

import pytest

from shim.memory.test_shim_memory import PRELUDE
from support.gpu.guest import GIB, MIB, PYTHON, share

OK, FULL = 0, 2  # CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
TWO_OF_THREE = [OK, OK, FULL, 224 * MIB, OK, OK]

ON_THE_SOFTWARE_GPU = [
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "own pool",
    "default pool",
    "cuMemCreate",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuMipmappedArrayCreate",
    "cuGraphAddMemAllocNode",
    "cuGraphAddNode",
    "captured cuMemAllocAsync",
]
# An import's other side is another API, which the software GPU has not.
ON_THE_MOCK = [
    "cuMemAlloc",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuMipmappedArrayCreate",
    "cuImportExternalMemory",
]


@pytest.mark.parametrize("family", ON_THE_SOFTWARE_GPU)
def test_two_of_three_pieces_fit_and_freeing_one_makes_room(host, new_guest, client, family):
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.json(client("leaks"), family, str(GIB)) == TWO_OF_THREE


@pytest.mark.parametrize("family", ON_THE_MOCK)
def test_two_of_three_pieces_fit_on_a_driver_that_sets_no_limit(new_mock_guest, client, family):
    assert new_mock_guest(GIB).json(client("leaks"), family, str(GIB)) == TWO_OF_THREE


def test_memory_opened_in_another_process_counts_once_with_its_owner(host, new_guest):
    owner = (
        "import ctypes"
        + PRELUDE
        + """
memory = must(cu.cuMemAlloc(400 << 20))
handle = must(cu.cuIpcGetMemHandle(memory))
print(ctypes.string_at(handle.getPtr(), 64).hex(), flush=True)
sys.stdin.readline()
"""
    )
    opener = (
        "import ctypes"
        + PRELUDE
        + """
handle = cu.CUipcMemHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[1]), 64)
lazy = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
memory = must(cu.cuIpcOpenMemHandle(handle, lazy))
opened = free_now()
answers = [cu.cuMemAlloc(400 << 20)[0].name for _ in range(2)]
must(cu.cuIpcCloseMemHandle(memory))
print(json.dumps([opened, *answers, free_now()]))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB))
    holder = guest.start(PYTHON, "-c", owner, stdin=-1)
    handle = holder.stdout.readline().strip()
    assert handle, holder.communicate()[1]
    try:
        full = "CUDA_ERROR_OUT_OF_MEMORY"
        seen = guest.python(opener, handle)
    finally:
        holder.communicate("\n")
    assert seen == [624 * MIB, "CUDA_SUCCESS", full, 224 * MIB]


def test_virtual_memory_counts_while_a_retained_handle_or_a_mapping_is_left(
    host, new_guest, client
):
    steps = new_guest(share(host.uuids[0], GIB)).json(client("mapped"), str(GIB))
    assert steps == {
        "created": 624 * MIB,
        "mapped and released": 624 * MIB,
        "retained": 624 * MIB,
        "unmapped": 624 * MIB,
        "released": GIB,
    }
