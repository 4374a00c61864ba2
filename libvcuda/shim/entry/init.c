/* cuInit, and what concerns every room: a forked child, and a new slot of the usage page.  */

#include <pthread.h>

#include "charge/alloc_map.h"
#include "charge/charge.h"
#include "charge/pools.h"
#include "charge/pools_held.h"
#include "compute/turn.h"
#include "context/context_count.h"
#include "context/forget.h"
#include "context/loaded_images.h"
#include "entry/mps.h"
#include "memory/bindings.h"
#include "memory/blocks.h"
#include "memory/graph_memory.h"
#include "memory/stream_unmaps.h"
#include "memory/unsaved.h"
#include "meter/meters.h"
#include "pages/pages.h"
#include "pages/slot.h"
#include "pages/suspended.h"
#include "real.h"
#include "thread/current_context.h"

static void
in_child (void)
{
  vcuda_slot_forget ();
  vcuda_charge_forget ();
  vcuda_map_forget ();
  vcuda_unsaved_forget ();
  vcuda_images_forget ();
  vcuda_libraries_forget ();
  vcuda_limits_forget ();
  vcuda_blocks_forget ();
  vcuda_bindings_forget ();
  vcuda_stream_unmaps_forget ();
  vcuda_graph_memory_forget ();
  vcuda_pools_forget ();
  vcuda_contexts_forget ();
  vcuda_checkpoints_forget ();
  vcuda_primaries_forget ();
  vcuda_current_forget_all ();
  vcuda_meters_forget ();
  vcuda_turn_forget ();
}

/* Sums up what this process holds. No running total is kept: each allocation would have to update
   it.  */
static void
enter_held (struct vcuda_usage_slot *slot)
{
  uint64_t bytes[VCUDA_MAX_GPUS] = { 0 };
  vcuda_map_held (bytes);
  vcuda_images_held (bytes);
  vcuda_blocks_held (bytes);
  vcuda_graph_memory_held (bytes);
  vcuda_pools_held (bytes);
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    __atomic_store_n (&slot->held_bytes[gpu], bytes[gpu], __ATOMIC_SEQ_CST);
  vcuda_context_counts (slot->contexts);
  vcuda_unsaved_enter (slot);
}

__attribute__ ((constructor)) static void
set_up (void)
{
  vcuda_slot_enter_held = enter_held;
  pthread_atfork (NULL, NULL, in_child);
}

CUresult
vcuda_cuInit (unsigned int flags)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  vcuda_wait_until_awake ();
  CUresult rc = vcuda_mps_join ();
  if (rc != CUDA_SUCCESS)
    return rc;
  return real.cuInit (flags);
}
