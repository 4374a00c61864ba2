/* cuInit, and what must be forgotten in a forked child.  */

#include <pthread.h>

#include "compute/meter.h"
#include "context/context_count.h"
#include "context/context_limits.h"
#include "context/contexts.h"
#include "context/loaded_images.h"
#include "context/modules.h"
#include "memory/alloc_map.h"
#include "memory/blocks.h"
#include "memory/charge.h"
#include "memory/graph_memory.h"
#include "memory/pools.h"
#include "pages/pages.h"
#include "pages/slot.h"
#include "real.h"
#include "thread/current_context.h"
#include "thread/in_driver.h"

static void
in_child (void)
{
  vcuda_slot_forget ();
  vcuda_charge_forget ();
  vcuda_map_forget ();
  vcuda_images_forget ();
  vcuda_libraries_forget ();
  vcuda_limits_forget ();
  vcuda_virtual_memory_forget ();
  vcuda_graph_memory_forget ();
  vcuda_pools_forget ();
  vcuda_contexts_forget ();
  vcuda_primaries_forget ();
  vcuda_current_forget_all ();
  vcuda_meters_forget ();
}

__attribute__ ((constructor)) static void
watch_forks (void)
{
  pthread_atfork (NULL, NULL, in_child);
}

CUresult
vcuda_cuInit (unsigned int flags)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  return real.cuInit (flags);
}
