/* Nodes that allocate and free memory. An alloc node has its addresses from the start, and no
   memory before a launch.  */

#include <stdlib.h>
#include <sys/mman.h>

#include "graph/graph.h"

#define PAGE 4096

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
  if (last)
    UNLINK (known, memory, next)
  pthread_mutex_unlock (&guard);
  if (last)
    {
      munmap ((void *) memory->start, memory->mapped);
      free (memory);
    }
}

CUresult
cuGraphAddMemAllocNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                        CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
  REQUIRE_ARGUMENTS (params && params->bytesize && params->bytesize <= SIZE_MAX / 2);
  const CUmemPoolProps *pool = &params->poolProps;
  REQUIRE (pool->allocType == CU_MEM_ALLOCATION_TYPE_PINNED
               && pool->handleTypes == CU_MEM_HANDLE_TYPE_NONE
               && pool->location.type == CU_MEM_LOCATION_TYPE_DEVICE,
           CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE (valid_device (pool->location.id), CUDA_ERROR_INVALID_DEVICE);
  /* What could never be there is refused here, the rest at the launch.  */
  REQUIRE (params->bytesize <= gpu_of (pool->location.id)->memory_bytes, CUDA_ERROR_OUT_OF_MEMORY);
  struct graph_memory *memory = calloc (1, sizeof *memory);
  REQUIRE (memory, CUDA_ERROR_OUT_OF_MEMORY);
  memory->references = 1;
  memory->device = pool->location.id;
  memory->bytes = params->bytesize;
  memory->mapped = (memory->bytes + PAGE - 1) & ~(size_t) (PAGE - 1);
  memory->context = softgpu_current_context ();
  void *map = mmap (NULL, memory->mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED)
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

NODE_ANSWER (MemAllocNodeGetParams, MEM_ALLOC, alloc.params, CUDA_MEM_ALLOC_NODE_PARAMS)

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
  REQUIRE_ARGUMENTS (graph_valid (graph) && begins_of_a_graph (address));
  for (CUgraphNode other = graph->first; other; other = other->next)
    REQUIRE (other->type != CU_GRAPH_NODE_TYPE_MEM_FREE || other->freed != address,
             CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SUCCESS (softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_MEM_FREE, from, count));
  (*node)->freed = address;
  graph->memory_nodes++;
  return CUDA_SUCCESS;
}

NODE_ANSWER (MemFreeNodeGetParams, MEM_FREE, freed, CUdeviceptr)
