"""Device memory of a context's limits is charged to the share."""

from __future__ import annotations

from shim.memory.test_shim_memory import PRELUDE
from support.gpu.guest import GIB, MIB, share

OK, FULL = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"
THREADS = 132 * 2048  # of the software GPU: each has a stack

LIMITS = (
    PRELUDE
    + """
LIMIT = cu.CUlimit
def put(limit, value):
    return [cu.cuCtxSetLimit(limit, value)[0].name, free_now()]
stack, fifo, heap = (LIMIT.CU_LIMIT_STACK_SIZE, LIMIT.CU_LIMIT_PRINTF_FIFO_SIZE,
                     LIMIT.CU_LIMIT_MALLOC_HEAP_SIZE)
"""
)


def test_a_raise_of_a_limit_is_charged_until_lowered_or_its_context_ends(host, new_guest):
    code = (
        LIMITS
        + """
seen = [put(heap, 1 << 20), put(heap, 108 << 20), put(heap, 58 << 20), put(fifo, 11 << 20)]
seen += [put(stack, 1000), put(stack, 1025), put(heap, 1 << 30)]
seen += [must(cu.cuCtxGetLimit(heap)), must(cu.cuCtxGetLimit(stack))]
own = must(cu.cuCtxCreate(None, 0, device))
seen += [put(heap, 18 << 20)]
must(cu.cuCtxDestroy(own))
must(cu.cuCtxSetCurrent(context))
seen += [free_now()]
must(cu.cuDevicePrimaryCtxReset(device))
print(json.dumps([*seen, free_now(), put(heap, 9 << 20)]))
"""
    )
    room = GIB
    # A stack is a multiple of 16 bytes.
    all_three = room - 60 * MIB - 16 * THREADS
    assert new_guest(share(host.uuids[0], room)).python(code) == [
        [OK, room],
        [OK, room - 100 * MIB],
        [OK, room - 50 * MIB],
        [OK, room - 60 * MIB],
        [OK, room - 60 * MIB],
        [OK, all_three],
        [FULL, all_three],
        58 * MIB,
        1040,
        [OK, all_three - 10 * MIB],
        all_three,
        room,
        [OK, room - MIB],
    ]


def test_a_stack_for_all_the_gpus_threads_is_refused_beyond_the_share(host, new_guest):
    code = LIMITS + "print(json.dumps([put(stack, 9 << 10), put(stack, 5 << 10)]))"
    growth = (4 << 10) * THREADS
    guest = new_guest(share(host.uuids[0], 2 * growth - 1))
    assert guest.python(code) == [[FULL, 2 * growth - 1], [OK, growth - 1]]
    assert guest.read_usage().gpus[0].refusals == 1


def test_a_limit_that_fits_but_for_the_drivers_rounding_is_refused_and_stays(host, new_guest):
    """A stack is a multiple of 16 bytes: with one byte more all threads take 16."""
    code = LIMITS + "print(json.dumps([put(stack, 1025), must(cu.cuCtxGetLimit(stack))]))"
    slice_bytes = 16 * THREADS - 1
    guest = new_guest(share(host.uuids[0], slice_bytes))
    assert guest.python(code) == [[FULL, slice_bytes], 1024]
    guest.write_limits([share(host.uuids[0], slice_bytes + 1)])
    assert guest.python(code) == [[OK, 0], 1040]
