/* The charge is the driver's own figure: the memory reserved for graphs on a device, which is kept
   from one launch to the next until cuDeviceGraphMemTrim. Before a launch, what the graph may need
   above that is reserved; afterwards the charge is set to the driver's new figure.

   Where the driver reports no figure, a graph is charged from its first launch until it is
   destroyed.  */

#include "memory/graph_memory.h"

#include <stdlib.h>
#include <string.h>

#include "charge/charge.h"
#include "memory/graph_footprint.h"
#include "memory/reserve.h"

struct exec
{
  CUgraphExec handle;
  bool launched; /* and charged, where the driver reports no figure */
  struct vcuda_footprint footprint;
};

bool vcuda_graph_memory_used;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct exec *execs;
static size_t exec_count, exec_room;
static uint64_t charged[VCUDA_MAX_GPUS];
static uint64_t pending[VCUDA_MAX_GPUS]; /* of it: launches under way */
static CUdevice device_of[VCUDA_MAX_GPUS];
static bool seen[VCUDA_MAX_GPUS];

static bool
driver_figure (int gpu, CUgraphMem_attribute which, uint64_t *bytes)
{
  cuuint64_t value = 0;
  bool known = real.cuDeviceGetGraphMemAttribute (device_of[gpu], which, &value) == CUDA_SUCCESS;
  *bytes = value;
  return known;
}

/* False: the driver reports no figure.  */
static bool
settle_locked (int gpu)
{
  uint64_t reserved;
  if (!seen[gpu] || !driver_figure (gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved))
    return false;
  uint64_t target = reserved + pending[gpu];
  uint64_t before = charged[gpu];
  charged[gpu] = target;
  if (target > before)
    vcuda_charge_unchecked (gpu, target - before);
  else
    vcuda_give_back (gpu, before - target);
  return true;
}

static struct exec *
find (CUgraphExec handle)
{
  for (size_t i = 0; i < exec_count; i++)
    if (execs[i].handle == handle)
      return &execs[i];
  return NULL;
}

/* What a launch of EXEC takes on GPU above what graphs hold on it.  */
static uint64_t
missing (const struct exec *exec, int gpu)
{
  uint64_t reserved, used;
  uint64_t need = exec->footprint.peak[gpu];
  if (!driver_figure (gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved)
      || !driver_figure (gpu, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used))
    return exec->launched ? 0 : need;
  uint64_t spare = reserved > used ? reserved - used : 0;
  return need > spare ? need - spare : 0;
}

CUresult
vcuda_graph_memory_launch (CUgraphExec handle)
{
  CUresult rc = CUDA_SUCCESS;
  vcuda_lock (&mutex);
  struct exec *exec = find (handle);
  int gpu = 0;
  uint64_t taken[VCUDA_MAX_GPUS] = { 0 };
  for (; exec && rc == CUDA_SUCCESS && gpu < VCUDA_MAX_GPUS; gpu++)
    {
      if (!exec->footprint.peak[gpu])
        continue;
      taken[gpu] = missing (exec, gpu);
      rc = taken[gpu] ? vcuda_reserve (gpu, taken[gpu]) : CUDA_SUCCESS;
      if (rc != CUDA_SUCCESS)
        taken[gpu] = 0;
    }
  for (gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    if (rc != CUDA_SUCCESS && taken[gpu])
      vcuda_give_back (gpu, taken[gpu]);
    else
      {
        charged[gpu] += taken[gpu];
        pending[gpu] += taken[gpu];
      }
  if (exec)
    memcpy (exec->footprint.now, taken, sizeof taken); /* until it is launched */
  vcuda_unlock (&mutex);
  return rc;
}

void
vcuda_graph_memory_launched (CUgraphExec handle, CUresult rc)
{
  vcuda_lock (&mutex);
  struct exec *exec = find (handle);
  for (int gpu = 0; exec && gpu < VCUDA_MAX_GPUS; gpu++)
    {
      uint64_t *taken = &exec->footprint.now[gpu];
      if (!exec->footprint.peak[gpu])
        continue;
      pending[gpu] -= *taken;
      if (!settle_locked (gpu) && rc != CUDA_SUCCESS)
        {
          charged[gpu] -= *taken;
          vcuda_give_back (gpu, *taken);
        }
      *taken = 0;
    }
  if (exec && rc == CUDA_SUCCESS)
    exec->launched = true;
  vcuda_unlock (&mutex);
}

void
vcuda_graph_memory_resettle (void)
{
  if (vcuda_thread ()->in_driver)
    return;
  vcuda_lock (&mutex);
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    settle_locked (gpu);
  vcuda_unlock (&mutex);
}

void
vcuda_graph_memory_instantiated (CUgraphExec handle, CUgraph graph)
{
  struct exec made = { .handle = handle };
  if (!vcuda_graph_footprint (graph, &made.footprint))
    return;
  memset (made.footprint.now, 0, sizeof made.footprint.now);
  vcuda_lock (&mutex);
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    if (made.footprint.peak[gpu])
      {
        device_of[gpu] = made.footprint.device[gpu];
        seen[gpu] = true;
      }
  if (exec_count == exec_room)
    {
      size_t wider = exec_room ? exec_room * 2 : 16;
      struct exec *moved = realloc (execs, wider * sizeof *moved);
      if (moved)
        {
          execs = moved;
          exec_room = wider;
        }
    }
  if (exec_count < exec_room)
    execs[exec_count++] = made;
  __atomic_store_n (&vcuda_graph_memory_used, true, __ATOMIC_RELEASE);
  vcuda_unlock (&mutex);
}

void
vcuda_graph_memory_destroyed (CUgraphExec handle)
{
  if (!__atomic_load_n (&vcuda_graph_memory_used, __ATOMIC_ACQUIRE))
    return;
  vcuda_lock (&mutex);
  struct exec *exec = find (handle);
  for (int gpu = 0; exec && gpu < VCUDA_MAX_GPUS; gpu++)
    {
      uint64_t unused;
      if (!exec->footprint.peak[gpu]
          || driver_figure (gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &unused))
        continue;
      uint64_t held = exec->launched ? exec->footprint.peak[gpu] : 0;
      charged[gpu] -= held;
      vcuda_give_back (gpu, held);
    }
  if (exec)
    *exec = execs[--exec_count];
  vcuda_unlock (&mutex);
}

void
vcuda_graph_memory_held (uint64_t *bytes)
{
  /* Called while a charge is made, perhaps by this file: no lock. The next settlement corrects a
     value that was just changing.  */
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    bytes[gpu] += __atomic_load_n (&charged[gpu], __ATOMIC_RELAXED);
}

void
vcuda_graph_memory_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
  execs = NULL;
  exec_count = exec_room = 0;
  memset (charged, 0, sizeof charged);
  memset (pending, 0, sizeof pending);
  memset (seen, 0, sizeof seen);
  vcuda_graph_memory_used = false;
}
