"""Memory of cuMemCreate that arrays map and multicast objects bind lives on after cuMemRelease.

Each step shows what the container has free and what the software GPU counts as held.
"""

from __future__ import annotations

import pytest

from shim.guest import GIB, MIB, Guest, share
from shim.virtual_time import together

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
