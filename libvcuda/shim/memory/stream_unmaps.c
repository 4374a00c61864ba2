/* A list of unmap operations, each with the event that ends it.  */

#include "memory/stream_unmaps.h"

#include <stdlib.h>

#include "memory/blocks.h"
#include "thread/current_context.h"
#include "thread/in_driver.h"
#include "thread/own_calls.h"

/* Bindings that a stream unmaps before EVENT. Without an event they end with the context.  */
struct ending
{
  CUevent event;
  CUcontext context;
  struct vcuda_binding *bindings;
  struct ending *next;
};

static struct ending *endings;

void
vcuda_stream_unmaps_add (CUstream stream, CUcontext context, struct vcuda_binding *list)
{
  struct ending *ending = malloc (sizeof *ending);
  if (!ending)
    return; /* no host memory: the charge stays until the process ends */
  *ending = (struct ending){ .context = context, .bindings = list, .next = endings };
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  bool entered = context && vcuda_enter_context (context);
  if (real.cuEventCreate (&ending->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    ending->event = NULL;
  else if (real.cuEventRecord (ending->event, stream) != CUDA_SUCCESS)
    {
      real.cuEventDestroy_v2 (ending->event);
      ending->event = NULL;
    }
  vcuda_leave_context (entered);
  vcuda_own_calls_end (mode);
  __atomic_store_n (&endings, ending, __ATOMIC_RELAXED);
}

/* Takes *AT out of the list, and ends its bindings.  */
static void
end_at (struct ending **at)
{
  struct ending *ending = *at;
  __atomic_store_n (at, ending->next, __ATOMIC_RELAXED);
  vcuda_bindings_end_list (ending->bindings);
  free (ending);
}

bool
vcuda_stream_unmaps_settle (void)
{
  bool any = false;
  if (!__atomic_load_n (&endings, __ATOMIC_RELAXED) || vcuda_thread ()->in_driver)
    return false;
  vcuda_blocks_lock ();
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  for (struct ending **at = &endings; *at;)
    if ((*at)->event && real.cuEventQuery ((*at)->event) == CUDA_SUCCESS)
      {
        real.cuEventDestroy_v2 ((*at)->event);
        end_at (at);
        any = true;
      }
    else
      at = &(*at)->next;
  vcuda_own_calls_end (mode);
  vcuda_blocks_unlock ();
  return any;
}

void
vcuda_stream_unmaps_end_context (CUcontext context)
{
  if (!context)
    return;
  vcuda_blocks_lock ();
  vcuda_bindings_end_context (context);
  for (struct ending **at = &endings; *at;)
    if ((*at)->context == context)
      end_at (at); /* the event has ended with its context */
    else
      at = &(*at)->next;
  vcuda_blocks_unlock ();
}

void
vcuda_stream_unmaps_forget (void)
{
  endings = NULL;
}
