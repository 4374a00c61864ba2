/* Memory that graphs allocate.

   A launch takes from the device's graph memory what it needs at its most, and takes more of the
   device only for what is missing there. What is freed stays with the graphs until
   cuDeviceGraphMemTrim.  */

#include <sys/mman.h>

#include "graph/graph.h"
#include "memory/allocations.h"
#include "memory/parts.h"

static struct
{
  uint64_t used, used_high, reserved, reserved_high;
} of_device[SOFTGPU_MAX_GPUS];

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

bool
softgpu_reserve_graph_memory (CUdevice device, uint64_t bytes)
{
  pthread_mutex_lock (&guard);
  uint64_t spare = of_device[device].reserved - of_device[device].used;
  uint64_t missing = bytes > spare ? bytes - spare : 0;
  bool got = !missing || softgpu_charge (device, missing);
  if (got)
    of_device[device].reserved += missing;
  if (of_device[device].reserved_high < of_device[device].reserved)
    of_device[device].reserved_high = of_device[device].reserved;
  pthread_mutex_unlock (&guard);
  return got;
}

CUresult
softgpu_begin_graph_memory (struct graph_memory *memory)
{
  struct block block = { .start = memory->start,
                         .bytes = memory->bytes,
                         .context = memory->context,
                         .device = memory->device,
                         .where = OF_GRAPH,
                         .fd = -1,
                         .owner = memory };
  REQUIRE (!memory->live, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (softgpu_reserve_graph_memory (memory->device, memory->bytes), CUDA_ERROR_OUT_OF_MEMORY);
  if (softgpu_lists_parts ())
    REQUIRE (softgpu_map_part (memory->device, memory->mapped, (void *) memory->start, &block.fd,
                               &block.offset),
             CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE (softgpu_add_block (&block), CUDA_ERROR_OUT_OF_MEMORY);
  pthread_mutex_lock (&guard);
  memory->live = true;
  of_device[memory->device].used += memory->bytes;
  if (of_device[memory->device].used_high < of_device[memory->device].used)
    of_device[memory->device].used_high = of_device[memory->device].used;
  pthread_mutex_unlock (&guard);
  softgpu_hold_graph_memory (memory);
  return CUDA_SUCCESS;
}

void
softgpu_graph_memory_freed (struct graph_memory *memory)
{
  pthread_mutex_lock (&guard);
  memory->live = false;
  of_device[memory->device].used -= memory->bytes;
  pthread_mutex_unlock (&guard);
  madvise ((void *) memory->start, memory->mapped, MADV_DONTNEED);
  softgpu_let_graph_memory (memory);
}

CUresult
cuDeviceGraphMemTrim (CUdevice device)
{
  REQUIRE_VALID_DEVICE (device);
  pthread_mutex_lock (&guard);
  uint64_t spare = of_device[device].reserved - of_device[device].used;
  of_device[device].reserved -= spare;
  pthread_mutex_unlock (&guard);
  softgpu_uncharge (device, spare);
  return CUDA_SUCCESS;
}

CUresult
cuDeviceGetGraphMemAttribute (CUdevice device, CUgraphMem_attribute attribute, void *value)
{
  REQUIRE_VALID_DEVICE (device);
  REQUIRE (value && (unsigned) attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
           CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock (&guard);
  const uint64_t figures[] = { of_device[device].used, of_device[device].used_high,
                               of_device[device].reserved, of_device[device].reserved_high };
  *(cuuint64_t *) value = figures[attribute];
  pthread_mutex_unlock (&guard);
  return CUDA_SUCCESS;
}

CUresult
cuDeviceSetGraphMemAttribute (CUdevice device, CUgraphMem_attribute attribute, void *value)
{
  REQUIRE_VALID_DEVICE (device);
  REQUIRE (value && *(const cuuint64_t *) value == 0
               && (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH
                   || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH),
           CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock (&guard);
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
    of_device[device].used_high = of_device[device].used;
  else
    of_device[device].reserved_high = of_device[device].reserved;
  pthread_mutex_unlock (&guard);
  return CUDA_SUCCESS;
}
