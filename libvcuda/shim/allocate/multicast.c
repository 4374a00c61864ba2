/* Multicast objects, and the memory that is bound to them.  */

#include "memory/bindings.h"
#include "memory/blocks.h"
#include "pages/device.h"

CUresult
vcuda_cuMulticastCreate (CUmemGenericAllocationHandle *object,
                         const CUmulticastObjectProp *properties)
{
  VCUDA_WITH_BLOCKS (real.cuMulticastCreate (object, properties), vcuda_block_enter (*object));
}

/* Adds a binding of BLOCK, which counts a use for it, to LIST.  */
static void
add_binding (struct vcuda_binding **list, struct vcuda_block *block, size_t offset, size_t bytes)
{
  struct vcuda_place place = { .kind = VCUDA_MULTICAST,
                               .gpu = vcuda_block_gpu (block),
                               .offset = { offset },
                               .extent = { bytes, 1, 1 } };
  struct vcuda_binding *binding = vcuda_new_binding (&place, block);
  if (!binding)
    return;
  binding->next = *list;
  *list = binding;
}

static struct vcuda_binding *
of_handle (size_t offset, CUmemGenericAllocationHandle memory, size_t bytes)
{
  struct vcuda_binding *list = NULL;
  struct vcuda_block *block = vcuda_block_use (memory);
  if (block)
    add_binding (&list, block, offset, bytes);
  return list;
}

/* One binding for each mapping from START on. A pool's memory has no mapping: it is charged with
   its pool.  */
static struct vcuda_binding *
of_addresses (size_t offset, CUdeviceptr start, size_t bytes)
{
  struct vcuda_binding *list = NULL;
  CUdeviceptr at = start, end;
  struct vcuda_block *block;
  while (at - start < bytes && (block = vcuda_block_use_at (at, &end)))
    {
      size_t here = end - at < bytes - (at - start) ? end - at : bytes - (at - start);
      add_binding (&list, block, offset + (at - start), here);
      at = end;
    }
  return list;
}

/* A binding that was at the same place has ended: the driver accepts a place once.  */
static void
bind (CUmemGenericAllocationHandle object, struct vcuda_binding *list)
{
  struct vcuda_binding *ended = NULL;
  while (list)
    {
      struct vcuda_binding *binding = list;
      list = binding->next;
      vcuda_bind (object, NULL, binding, &ended);
    }
  vcuda_bindings_end_list (ended);
}

/* The body of a function that binds what BINDINGS finds to OBJECT. The driver waits in CALL until
   all devices are added to the object, so the lock is not held during it; the memory and the object
   count a use already.  */
#define BIND(object, bindings, call)                                                               \
  do                                                                                               \
    {                                                                                              \
      VCUDA_PASS_ON (call);                                                                        \
      vcuda_blocks_lock ();                                                                        \
      struct vcuda_block *used = vcuda_block_use (object);                                         \
      struct vcuda_binding *list = bindings;                                                       \
      vcuda_blocks_unlock ();                                                                      \
      CUresult rc = VCUDA_CALL_DRIVER (call);                                                      \
      vcuda_blocks_lock ();                                                                        \
      if (rc == CUDA_SUCCESS)                                                                      \
        bind (object, list);                                                                       \
      else                                                                                         \
        vcuda_bindings_end_list (list);                                                            \
      if (used)                                                                                    \
        vcuda_block_unuse (used);                                                                  \
      vcuda_blocks_unlock ();                                                                      \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

CUresult
vcuda_cuMulticastBindMem (CUmemGenericAllocationHandle object, size_t offset,
                          CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                          unsigned long long flags)
{
  BIND (object, of_handle (offset, memory, bytes),
        real.cuMulticastBindMem (object, offset, memory, from, bytes, flags));
}

CUresult
vcuda_cuMulticastBindMem_v2 (CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                             CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                             unsigned long long flags)
{
  BIND (object, of_handle (offset, memory, bytes),
        real.cuMulticastBindMem_v2 (object, device, offset, memory, from, bytes, flags));
}

CUresult
vcuda_cuMulticastBindAddr (CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr start,
                           size_t bytes, unsigned long long flags)
{
  BIND (object, of_addresses (offset, start, bytes),
        real.cuMulticastBindAddr (object, offset, start, bytes, flags));
}

CUresult
vcuda_cuMulticastBindAddr_v2 (CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                              CUdeviceptr start, size_t bytes, unsigned long long flags)
{
  BIND (object, of_addresses (offset, start, bytes),
        real.cuMulticastBindAddr_v2 (object, device, offset, start, bytes, flags));
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
  VCUDA_WITH_BLOCKS (real.cuMulticastUnbind (object, device, offset, bytes),
                     unbind (object, device, offset, bytes));
}
