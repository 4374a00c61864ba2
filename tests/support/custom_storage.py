"""Scripts of clients that checkpoint another process to custom storage, and their targets."""

from __future__ import annotations

from support.softgpu_host import CALLS

VERSION = ("--driver-version", "615.10")

# Calls the driver by ctypes: `begin` gives the code and the struct, `ranges` what it maps.
STORAGE = (
    CALLS
    + """
driver = ctypes.CDLL("libcuda.so.1")
class Range(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("size", ctypes.c_uint64),
                ("stream", ctypes.c_uint64)]
class Info(ctypes.Structure):
    _fields_ = [("handle", ctypes.c_uint64), ("ranges", ctypes.POINTER(Range)),
                ("count", ctypes.c_uint)]
def begin(step, pid, pairs=()):
    out, args = ctypes.POINTER(Info)(), (ctypes.c_uint64 * 8)()
    listed = b"".join(bytes(old.bytes) + bytes(new.bytes) for old, new in pairs)
    kept = ctypes.create_string_buffer(listed, len(listed) or 1)
    args[0 if step == "Checkpoint" else 2] = ctypes.addressof(out)
    if pairs:
        args[0], args[1] = ctypes.addressof(kept), len(pairs)
    code = driver["cuCheckpointProcess" + step](pid, args)
    return code, out.contents if code == 0 else None
def complete(handle):
    return driver.cuCheckpointOperationComplete(ctypes.c_uint64(handle))
def ranges(info):
    return [info.ranges[at] for at in range(info.count)]
def save(info):
    stored = []
    for part in ranges(info):
        buffer = ctypes.create_string_buffer(part.size)
        ok(cuda.cuMemcpyDtoHAsync(ctypes.addressof(buffer), part.address, part.size, part.stream))
        stored.append(buffer)
    return stored
def load(info, stored, most=1 << 40):
    for part, buffer in zip(ranges(info), stored):
        size = min(part.size, most)
        ok(cuda.cuMemcpyHtoDAsync(part.address, ctypes.addressof(buffer), size, part.stream))
def retain(*devices):
    ok(cuda.cuInit(0))
    for device in devices:
        ok(cuda.cuCtxSetCurrent(ok(cuda.cuDevicePrimaryCtxRetain(device))))
def lock(pid):
    ok(cuda.cuCheckpointProcessLock(pid, None))
def unlock(pid):
    ok(cuda.cuCheckpointProcessUnlock(pid, None))
def state(pid):
    return ok(cuda.cuCheckpointProcessGetState(pid)).value
"""
)

# Holds 8 MiB of sevens.
HOLDER = (
    CALLS
    + """
start()
memory = ok(cuda.cuMemAlloc(8 * MIB))
ok(cuda.cuMemsetD8(memory, 7, 8 * MIB))
say(pid=os.getpid())
sys.stdin.readline()
back = bytearray(8 * MIB)
ok(cuda.cuMemcpyDtoH(back, memory, 8 * MIB))
say(back=sorted(set(back)), used=used())
"""
)
