/* Memory that graphs allocate.

   An alloc node has its addresses from the start, and no memory. A launch takes from the device's
   graph memory what it needs at its most, and takes more of the device only for what is missing
   there. What is freed stays with the graphs until cuDeviceGraphMemTrim.  */

#include <stdlib.h>
#include <sys/mman.h>

#include "graph.h"
#include "store.h"

static struct
{
  uint64_t used, used_high, reserved, reserved_high;
} of_device[SOFTGPU_MAX_GPUS];

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct graph_memory *known;

void
softgpu_hold_graph_memory (struct graph_memory *memory)
{
  pthread_mutex_lock (&guard);
  memory->references++;
  pthread_mutex_unlock (&guard);
}

void
softgpu_let_graph_memory (struct graph_memory *memory)
{
  pthread_mutex_lock (&guard);
  bool last = --memory->references == 0;
  for (struct graph_memory **at = &known; last && *at; at = &(*at)->next)
    if (*at == memory)
      {
        *at = memory->next;
        break;
      }
  pthread_mutex_unlock (&guard);
  if (last)
    {
      munmap ((void *) memory->start, memory->mapped);
      free (memory);
    }
}

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
  REQUIRE (softgpu_add_block (&block), CUDA_ERROR_OUT_OF_MEMORY);
  pthread_mutex_lock (&guard);
  memory->live = true;
  memory->references++;
  of_device[memory->device].used += memory->bytes;
  if (of_device[memory->device].used_high < of_device[memory->device].used)
    of_device[memory->device].used_high = of_device[memory->device].used;
  pthread_mutex_unlock (&guard);
  return CUDA_SUCCESS;
}

void
softgpu_graph_memory_gone (struct graph_memory *memory)
{
  pthread_mutex_lock (&guard);
  memory->live = false;
  of_device[memory->device].used -= memory->bytes;
  pthread_mutex_unlock (&guard);
  madvise ((void *) memory->start, memory->mapped, MADV_DONTNEED);
  softgpu_let_graph_memory (memory);
}

CUresult
softgpu_end_graph_memory (uintptr_t address)
{
  return softgpu_release (address, GRAPHS);
}

CUresult
softgpu_add_alloc (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                   CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
  REQUIRE_DRIVER ();
  REQUIRE (params && params->bytesize && params->bytesize <= SIZE_MAX / 2,
           CUDA_ERROR_INVALID_VALUE);
  const CUmemPoolProps *pool = &params->poolProps;
  REQUIRE (pool->allocType == CU_MEM_ALLOCATION_TYPE_PINNED
               && pool->handleTypes == CU_MEM_HANDLE_TYPE_NONE
               && pool->location.type == CU_MEM_LOCATION_TYPE_DEVICE,
           CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE (valid_device (pool->location.id), CUDA_ERROR_INVALID_DEVICE);
  struct graph_memory *memory = calloc (1, sizeof *memory);
  REQUIRE (memory, CUDA_ERROR_OUT_OF_MEMORY);
  memory->references = 1;
  memory->device = pool->location.id;
  memory->bytes = params->bytesize;
  memory->mapped = (memory->bytes + STORE_PAGE - 1) & ~(size_t) (STORE_PAGE - 1);
  memory->context = softgpu_current_context ();
  void *map = softgpu_map (-1, 0, memory->mapped, NULL, PROT_READ | PROT_WRITE);
  if (!map)
    {
      free (memory);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  memory->start = (uintptr_t) map;
  pthread_mutex_lock (&guard);
  memory->next = known;
  known = memory;
  pthread_mutex_unlock (&guard);
  CUresult rc = softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, from, count);
  if (rc != CUDA_SUCCESS)
    {
      softgpu_let_graph_memory (memory);
      return rc;
    }
  params->dptr = memory->start;
  (*node)->alloc.params = *params;
  (*node)->alloc.params.accessDescs = NULL;
  (*node)->alloc.params.accessDescCount = 0;
  (*node)->alloc.memory = memory;
  graph->memory_nodes++;
  return CUDA_SUCCESS;
}

CUresult
cuGraphAddMemAllocNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                        CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
  return softgpu_add_alloc (node, graph, from, count, params);
}

CUresult
cuGraphMemAllocNodeGetParams (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
  REQUIRE_DRIVER ();
  REQUIRE (node && node->kind == GRAPH_NODE && node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && params,
           CUDA_ERROR_INVALID_VALUE);
  *params = node->alloc.params;
  return CUDA_SUCCESS;
}

static const struct graph_memory *
first_within (uintptr_t address, size_t bytes)
{
  const struct graph_memory *memory = known;
  while (memory
         && (address < memory->start || address - memory->start > memory->bytes
             || bytes > memory->bytes - (address - memory->start)))
    memory = memory->next;
  return memory;
}

bool
softgpu_of_a_graph (uintptr_t address, size_t bytes)
{
  pthread_mutex_lock (&guard);
  bool found = first_within (address, bytes) != NULL;
  pthread_mutex_unlock (&guard);
  return found;
}

static bool
begins_of_a_graph (uintptr_t address)
{
  pthread_mutex_lock (&guard);
  const struct graph_memory *memory = first_within (address, 1);
  bool begins = memory && memory->start == address;
  pthread_mutex_unlock (&guard);
  return begins;
}

CUresult
cuGraphAddMemFreeNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                       CUdeviceptr address)
{
  REQUIRE_DRIVER ();
  REQUIRE (graph_valid (graph) && begins_of_a_graph (address), CUDA_ERROR_INVALID_VALUE);
  for (CUgraphNode other = graph->first; other; other = other->next)
    REQUIRE (other->type != CU_GRAPH_NODE_TYPE_MEM_FREE || other->freed != address,
             CUDA_ERROR_INVALID_VALUE);
  CUresult rc = softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_MEM_FREE, from, count);
  if (rc == CUDA_SUCCESS)
    {
      (*node)->freed = address;
      graph->memory_nodes++;
    }
  return rc;
}

CUresult
cuGraphMemFreeNodeGetParams (CUgraphNode node, CUdeviceptr *address)
{
  REQUIRE_DRIVER ();
  REQUIRE (node && node->kind == GRAPH_NODE && node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && address,
           CUDA_ERROR_INVALID_VALUE);
  *address = node->freed;
  return CUDA_SUCCESS;
}

CUresult
cuDeviceGraphMemTrim (CUdevice device)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_device (device), CUDA_ERROR_INVALID_DEVICE);
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
  REQUIRE_DRIVER ();
  REQUIRE (valid_device (device), CUDA_ERROR_INVALID_DEVICE);
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
  REQUIRE_DRIVER ();
  REQUIRE (valid_device (device), CUDA_ERROR_INVALID_DEVICE);
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
