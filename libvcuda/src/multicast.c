/* Multicast objects, and the memory that is bound to them.  */

#include "bindings.h"
#include "device.h"
#include "inside.h"
#include "pages.h"
#include "virtual_memory.h"

/* The body of a call: NOTE is done under the lock once the driver has granted CALL.  */
#define WITH_LOCK(call, note)                                                                      \
  do                                                                                               \
    {                                                                                              \
      if (vcuda_thread ()->in_driver)                                                              \
        return call;                                                                               \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      vcuda_blocks_lock ();                                                                        \
      CUresult rc = VCUDA_WITHIN (call);                                                           \
      if (rc == CUDA_SUCCESS)                                                                      \
        note;                                                                                      \
      vcuda_blocks_unlock ();                                                                      \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

CUresult
vcuda_cuMulticastCreate (CUmemGenericAllocationHandle *object,
                         const CUmulticastObjectProp *properties)
{
  WITH_LOCK (real.cuMulticastCreate (object, properties), vcuda_block_enter (*object));
}

/* What had the place is no longer bound there: the driver accepts a place once.  */
static void
bind_to_object (CUmemGenericAllocationHandle object, size_t offset, size_t bytes,
                struct vcuda_block *block)
{
  struct vcuda_binding *ended = NULL;
  struct vcuda_place place = { .kind = VCUDA_MULTICAST,
                               .gpu = vcuda_block_gpu (block),
                               .offset = { offset },
                               .extent = { bytes, 1, 1 } };
  vcuda_bind (object, NULL, &place, block, &ended);
  vcuda_bindings_end_list (ended);
}

static void
bind_handle (CUmemGenericAllocationHandle object, size_t offset,
             CUmemGenericAllocationHandle memory, size_t bytes)
{
  struct vcuda_block *block = vcuda_block_use (memory);
  if (block)
    bind_to_object (object, offset, bytes, block);
}

/* Walks from one mapping to the next. Memory of pools has no mapping here: it is charged with its
   pool.  */
static void
bind_address (CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr start, size_t bytes)
{
  CUdeviceptr at = start, end;
  struct vcuda_block *block;
  while (at - start < bytes && (block = vcuda_block_use_at (at, &end)))
    {
      size_t here = end - at < bytes - (at - start) ? end - at : bytes - (at - start);
      bind_to_object (object, offset + (at - start), here, block);
      at = end;
    }
}

CUresult
vcuda_cuMulticastBindMem (CUmemGenericAllocationHandle object, size_t offset,
                          CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                          unsigned long long flags)
{
  WITH_LOCK (real.cuMulticastBindMem (object, offset, memory, from, bytes, flags),
             bind_handle (object, offset, memory, bytes));
}

CUresult
vcuda_cuMulticastBindMem_v2 (CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                             CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                             unsigned long long flags)
{
  WITH_LOCK (real.cuMulticastBindMem_v2 (object, device, offset, memory, from, bytes, flags),
             bind_handle (object, offset, memory, bytes));
}

CUresult
vcuda_cuMulticastBindAddr (CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr start,
                           size_t bytes, unsigned long long flags)
{
  WITH_LOCK (real.cuMulticastBindAddr (object, offset, start, bytes, flags),
             bind_address (object, offset, start, bytes));
}

CUresult
vcuda_cuMulticastBindAddr_v2 (CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                              CUdeviceptr start, size_t bytes, unsigned long long flags)
{
  WITH_LOCK (real.cuMulticastBindAddr_v2 (object, device, offset, start, bytes, flags),
             bind_address (object, offset, start, bytes));
}

static void
unbind (CUmemGenericAllocationHandle object, CUdevice device, size_t offset, size_t bytes)
{
  struct vcuda_binding *ended = NULL;
  struct vcuda_place place = { .kind = VCUDA_MULTICAST,
                               .gpu = vcuda_gpu_of_device (device),
                               .offset = { offset },
                               .extent = { bytes, 1, 1 } };
  vcuda_unbind (object, &place, &ended);
  vcuda_bindings_end_list (ended);
}

CUresult
vcuda_cuMulticastUnbind (CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                         size_t bytes)
{
  WITH_LOCK (real.cuMulticastUnbind (object, device, offset, bytes),
             unbind (object, device, offset, bytes));
}
