"""Programs that write false signals into the first container's page, as scripts of the judge."""

from __future__ import annotations

# The first container's page, and the signals in it. It can lock a slot without the shim.
PAGE = """
import ctypes, fcntl, json, mmap, os, random, struct, sys, time
from vcuda_oci.pages import layout
given = json.loads(sys.argv[1])
at = {name: offset for name, offset, _ in layout.offsets()}
page = os.open(given["usage"][0], os.O_RDWR)
FIRST, SLOT = at["usage.slot"], layout.USAGE_SLOT_SIZE
GPU = at["usage.gpu"]
call = ctypes.CDLL(None).syscall
shared = mmap.mmap(page, layout.USAGE_SIZE)
bell = ctypes.c_uint32.from_buffer(shared, GPU + at["usage_gpu.bell"])
def ring():
    bell.value = (bell.value + 1) % (1 << 32)
    call(202, ctypes.byref(bell), 1, 1 << 30, None, None, 0)
def put(offset, value, size):
    os.pwrite(page, value.to_bytes(size, "little"), offset)
def mark(slot, marks):
    put(FIRST + slot * SLOT + at["usage_slot.turn_marks"], marks, 8)
def claim(slot):
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, layout.USAGE_LOCK_BASE + slot, 1, 0)
    fcntl.fcntl(page, 37, lock)  # F_OFD_SETLK
    put(at["usage.slots_used"], slot + 1, 4)
def busy_until(moment):
    put(GPU + at["usage_gpu.busy_until_ns"], moment, 8)
"""
BUSY_FOR_EVER = """
claim(5)
while True:
    mark(5, 3); busy_until((1 << 64) - 1); ring()
    time.sleep(0.01)
"""
WANTS_FOR_EVER = """
claim(5)
while True:
    mark(5, 4); ring()
    time.sleep(0.01)
"""
NEVER_BUSY = """
while True:
    for slot in range(4):
        mark(slot, 0)
    time.sleep(0.0001)
"""
TRUNCATED = """
time.sleep(0.5)
os.ftruncate(page, 100)
time.sleep(3600)
"""
RINGING = """
while True:
    ring()
    time.sleep(0.0001)
"""
RANDOM = """
random.seed(7)
while True:
    for _ in range(20):
        put(GPU + random.randrange(16 * layout.USAGE_GPU_SIZE), random.getrandbits(64), 8)
    for slot in range(4):
        mark(slot, random.getrandbits(64))
    ring()
    time.sleep(0.001)
"""
# Plausible values of the fields by which turns go, at random moments, a thousand times a second.
FLIPS = """
random.seed(%d)
while True:
    field = random.randrange(4)
    if field == 0:
        mark(random.randrange(4), random.randrange(8))
    elif field == 1:
        ring()
    elif field == 2:
        put(GPU + at["usage_gpu.work_begun"], random.getrandbits(32), 4)
    else:
        busy_until(time.monotonic_ns() + random.randrange(-(10**8), 10**8))
    time.sleep(random.expovariate(1000))
"""


# The same page and bell as BUSY_FOR_EVER, without a false mark.
HONEST = """
claim(5)
while True:
    mark(5, 0); busy_until((1 << 64) - 1); ring()
    time.sleep(0.01)
"""
