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
marks = [FIRST + slot * SLOT + at["usage_slot.turn_marks"] for slot in range(4)]
marks = [ctypes.c_uint64.from_buffer(shared, each) for each in marks]
while True:
    for each in marks:
        each.value = 0
    time.sleep(0.0001)
"""
# As if processes ended without end.
CLOSING = """
while True:
    os.close(os.open(given["usage"][0], os.O_RDWR))
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


# Any bytes anywhere, and any size, for a while each.
FUZZ = """
random.seed(%d)
while True:
    kind = random.randrange(10)
    if kind == 0:
        os.ftruncate(page, random.choice((0, 100, GPU + 8, layout.USAGE_SIZE - 1, 1 << 30)))
    elif kind == 1:
        os.ftruncate(page, layout.USAGE_SIZE)
    elif kind == 2:
        claim(random.randrange(5, 256))
    else:
        for _ in range(random.randrange(50)):
            size = random.choice((1, 4, 8))
            edge = random.choice((0, 1, (1 << (8 * size)) - 1, 1 << (8 * size - 1), 1 << 63))
            value = random.choice((edge, random.getrandbits(64), time.monotonic_ns()))
            offset = random.randrange(random.choice((GPU + 256, layout.USAGE_SIZE)))
            put(offset, value %% (1 << (8 * size)), size)
    # The bell's mapping may lie beyond the file's end.
    if os.fstat(page).st_size >= layout.USAGE_SIZE:
        ring()
    time.sleep(random.expovariate(500))
"""


# The same page and bell as BUSY_FOR_EVER, without a false mark.
HONEST = """
claim(5)
while True:
    mark(5, 0); busy_until((1 << 64) - 1); ring()
    time.sleep(0.01)
"""
# What the limits page tells the container, and what a keeper takes over from its bucket.
TURNS = """
WAIT, HELD, OPEN = 2, 3, 1
limits = os.open(given["limits"][0], os.O_RDONLY)
SWITCH, BEGUN = GPU + at["usage_gpu.switch_ns"], GPU + at["usage_gpu.work_begun"]
def limit(field, kind):
    size = struct.calcsize(kind)
    return struct.unpack(kind, os.pread(limits, size, at["limits.gpu"] + at[field]))[0]
def word():
    return limit("limits_gpu.turn", "I")
def state():
    return word() & 3
def now():
    return time.monotonic_ns()
def wait(wanted, seconds=3600, step=0.001):
    until = now() + int(seconds * 1e9)
    while (state() == WAIT) == wanted and now() < until:
        time.sleep(step)
def full_bucket(word):
    put(GPU + at["usage_gpu.turn_taken"], word, 4)
    put(GPU + at["usage_gpu.balance_ns"], 10**7, 8)
    put(GPU + at["usage_gpu.refilled_ns"], now(), 8)
claim(5)
time.sleep(0.5)
"""
# Lies that end before the keeper doubts the first one.
SHORT_LIES = """
while True:
    wait(False)
    mark(5, 3); busy_until(now() + 10**9)
    time.sleep(0.045)
    mark(5, 0); ring()
    time.sleep(0.0005)
"""
# Its queue seems to end, after a while that its estimate explains.
LATE = """
while True:
    while state() == WAIT:
        mark(5, 4); ring(); time.sleep(0.002)
    began = now()
    while now() - began < %d * 10**6:
        mark(5, 3); busy_until(began + 10**9); time.sleep(0.002)
    mark(5, 4); ring()
"""
# Late whenever it was alone, and its bucket shows nothing of that.
LATE_ALONE = """
while True:
    mark(5, 4); ring(); time.sleep(0.001)
    given_word = word()
    if given_word & 3 != OPEN:
        continue
    mark(5, 3); busy_until(now() + 10**9); ring()
    while word() == given_word:
        time.sleep(0.001)
    began = now()
    while now() - began < 400 * 10**6:
        full_bucket(given_word); busy_until(began + 10**9); time.sleep(0.002)
    full_bucket(given_word); mark(5, 0); ring()
    time.sleep(0.01)
"""
# Turns that end as they begin, and now and then a whole one; a switch seems to cost much.
SHORT_TURNS = """
begun = 0
while True:
    put(SWITCH, 4 * 10**6, 4)
    for number in range(100):
        mark(5, 4); ring(); wait(True, 0.001, 0.00002)
        mark(5, 0); ring(); wait(False, 0.001, 0.00002)
    mark(5, 4); ring(); wait(True, step=0.0001)
    while state() == HELD and now() <= limit("limits_gpu.turn_until_ns", "Q"):
        begun += 20
        put(BEGUN, begun, 4); mark(5, 3); busy_until(now() + 10**7)
        time.sleep(0.001)
    mark(5, 4); ring()
"""
# One of its processes has died in a turn, and its slot was not taken again.
DEAD_PROCESSES = """
put(at["usage.slots_used"], 40, 4)
while True:
    if state() == HELD:
        for slot in range(20, 20 + %d):
            mark(slot, 3)
    time.sleep(0.001)
"""
