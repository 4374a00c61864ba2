"""Scripts of clients that checkpoint another process to custom storage, and their targets."""

from __future__ import annotations

from support.softgpu.softgpu_host import CALLS

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

# Every way in which a program gets device memory, with the byte that it has everywhere there.
KINDS = (
    CALLS
    + """
start()
held = []
def fill(address, size):
    byte = 1 + len(held)
    ok(cuda.cuMemsetD8(address, byte, size))
    held.append((address, size, byte))
def mapped(handle):
    address = ok(cuda.cuMemAddressReserve(2 * MIB, 0, 0, 0))
    ok(cuda.cuMemMap(address, 2 * MIB, 0, handle, 0))
    access = cuda.CUmemAccessDesc()
    access.location, access.flags = prop.location, cuda.CUmemAccess_flags(3)
    ok(cuda.cuMemSetAccess(address, 2 * MIB, [access], 1))
    return address
for size in (100, 70_000, MIB, 200):
    fill(ok(cuda.cuMemAlloc(size)), size)
ok(cuda.cuMemFree(ok(cuda.cuMemAlloc(3 * MIB))))
fill(ok(cuda.cuMemAllocAsync(MIB, 0)), MIB)
prop = cuda.CUmemAllocationProp()
prop.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
fill(mapped(ok(cuda.cuMemCreate(2 * MIB, prop, 0))), 2 * MIB)
prop.requestedHandleTypes = cuda.CUmemAllocationHandleType(1)
exported = ok(cuda.cuMemCreate(2 * MIB, prop, 0))
fill(mapped(exported), 2 * MIB)
node_params = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
node_params.poolProps.allocType = prop.type
node_params.poolProps.location = prop.location
node_params.bytesize = MIB
graph = ok(cuda.cuGraphCreate(0))
ok(cuda.cuGraphAddMemAllocNode(graph, None, 0, node_params))
ok(cuda.cuGraphLaunch(ok(cuda.cuGraphInstantiate(graph, 0)), 0))
ok(cuda.cuStreamSynchronize(0))
fill(node_params.dptr, MIB)
pinned = ok(cuda.cuMemAllocHost(64))
ctypes.memset(pinned, 99, 64)
say(pid=os.getpid())
sys.stdin.readline()
def is_inverted(address, size, byte):
    back = bytearray(size)
    ok(cuda.cuMemcpyDtoH(back, address, size))
    return set(back) == {255 - byte}
say(inverted=[is_inverted(*each) for each in held], pinned=ctypes.string_at(pinned, 1)[0])
"""
)
