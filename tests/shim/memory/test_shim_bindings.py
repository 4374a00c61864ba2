"""Memory of cuMemCreate that arrays map and multicast objects bind lives on after cuMemRelease.

Each step shows what the container has free and what the software GPU counts as held.
"""

from __future__ import annotations

import pytest

from shim.cuda_program import START
from support.gpu.guest import GIB, MIB, Guest, share
from support.softgpu.virtual_time import together

FULL = 2  # CUDA_ERROR_OUT_OF_MEMORY
NOTHING = [GIB, 0]
PIECE = [624 * MIB, 400 * MIB]
ARRAYS = ["array", "parts", "mipmapped", "deferred"]
MULTICAST = ["handle", "handle_v2", "address", "address_v2"]


@pytest.fixture
def host_options() -> list[str]:
    return ["--topology", "nvswitch=18"]


@pytest.fixture
def container(host, new_guest) -> Guest:
    return new_guest(*(share(uuid, GIB) for uuid in host.uuids))


@pytest.mark.parametrize("way", ARRAYS)
def test_memory_that_an_array_maps_counts_until_a_stream_has_unmapped_it(
    container, client, tmp_path, way
):
    assert together(tmp_path, (container, [client("bound"), way, str(GIB)])) == [
        {
            "start": NOTHING,
            "released": PIECE,
            "rest": FULL,
            "the stream has still to unmap": PIECE,
            "unmapped": NOTHING,
            "released again": PIECE,
            "ended": NOTHING,
        }
    ]


def test_memory_that_an_array_maps_counts_until_its_context_ends(container, client, tmp_path):
    assert together(tmp_path, (container, [client("bound"), "context", str(GIB)])) == [
        {
            "start": NOTHING,
            "released": PIECE,
            "rest": FULL,
            "the stream has still to unmap": PIECE,
            "released again": [524 * MIB, 500 * MIB],
            "ended": NOTHING,
        }
    ]


@pytest.mark.parametrize("way", MULTICAST)
def test_memory_that_a_multicast_object_binds_counts_until_it_is_unbound(container, client, way):
    assert container.json(client("bound"), way, str(GIB)) == {
        "start": NOTHING,
        "released": PIECE,
        "rest": FULL,
        "unmapped": NOTHING,
        "released again": PIECE,
        "object released": PIECE,
        "ended": NOTHING,
    }


@pytest.mark.parametrize("way", ["array", "handle"])
def test_memory_that_is_mapped_or_bound_ends_with_a_killed_process(container, client, way):
    look = [client("bound"), "look", str(GIB)]
    holder = container.start(client("bound"), way, str(GIB), "hold")
    try:
        assert "released" in holder.stdout.readline(), holder.communicate()[1]
        assert container.json(*look) == {"start": PIECE}
    finally:
        holder.kill()
        holder.communicate()
    assert container.json(*look) == {"start": NOTHING}


WAITS_FOR_ITS_TEAM = (
    START
    + """
import threading, time
SIZE = 400 << 20
def create():
    wanted = cu.CUmemAllocationProp()
    wanted.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return must(cu.cuMemCreate(SIZE, wanted, 0))
def reserve():
    return int(must(cu.cuMemAddressReserve(SIZE, 0, 0, 0)))
team = cu.CUmulticastObjectProp()
team.numDevices, team.size = 2, SIZE
object, memory, place = must(cu.cuMulticastCreate(team)), create(), reserve()
must(cu.cuMulticastAddDevice(object, 0))
def bind_memory():
    must(cu.cuMulticastBindMem(object, 0, memory, 0, SIZE, 0))
def bind_address():
    must(cu.cuMulticastBindAddr(object, 0, source, SIZE, 0))
def map_object():
    must(cu.cuMemMap(place, SIZE, 0, object, 0))
source = reserve()
must(cu.cuMemMap(source, SIZE, 0, memory, 0))
waiting = threading.Thread(target=globals()[WAY])
waiting.start()
time.sleep(0.2)
other = create()
must(cu.cuMemRelease(other))
must(cu.cuMulticastAddDevice(object, 1))
waiting.join()
must(cu.cuMemUnmap(source, SIZE))
must(cu.cuMemRelease(memory))
print(json.dumps(must(cu.cuMemGetInfo())[0]))
"""
)


@pytest.mark.parametrize("way", ["bind_memory", "bind_address", "map_object"])
def test_memory_is_made_while_another_thread_waits_for_a_multicast_team(container, way):
    code = WAITS_FOR_ITS_TEAM.replace("WAY", repr(way))
    assert container.python(code) == (GIB if way == "map_object" else PIECE[0])
