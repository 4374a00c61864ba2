/* cuInit, and what must be forgotten in a forked child.  */

#include <pthread.h>

#include "alloc_map.h"
#include "charge.h"
#include "context_count.h"
#include "contexts.h"
#include "current.h"
#include "graph_memory.h"
#include "image_register.h"
#include "inside.h"
#include "limits.h"
#include "meter.h"
#include "modules.h"
#include "pages.h"
#include "pools.h"
#include "real.h"
#include "slot.h"
#include "virtual_memory.h"

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
