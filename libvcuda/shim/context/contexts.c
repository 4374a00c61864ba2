/* Contexts: each one is counted when it begins; when it ends, it gives back what it held, and its
   meter is dropped.  */

#include <pthread.h>

#include "charge/alloc_map.h"
#include "charge/charge.h"
#include "charge/pools_held.h"
#include "compute/waits.h"
#include "context/context_count.h"
#include "context/forget.h"
#include "context/loaded_images.h"
#include "memory/graph_memory.h"
#include "memory/settle.h"
#include "memory/stream_unmaps.h"
#include "memory/unsaved.h"
#include "meter/meters.h"
#include "pages/pages.h"
#include "pages/pass_on.h"
#include "pages/suspended.h"
#include "thread/current_context.h"

#define DEVICES 64

static void
give_back_context (CUcontext context, bool with_pools)
{
  vcuda_current_forget_all ();
  vcuda_meter_drop (context);
  uint64_t bytes[VCUDA_MAX_GPUS] = { 0 };
  vcuda_map_take_context (context, bytes, with_pools ? vcuda_pool_lost : NULL);
  vcuda_images_take_context (context, bytes);
  vcuda_stream_unmaps_end_context (context);
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    if (bytes[gpu])
      vcuda_give_back (gpu, bytes[gpu]);
  vcuda_note_managed ();
  if (with_pools)
    vcuda_pools_settle ();
  vcuda_graph_memory_settle ();
}

/* The new context is then the thread's current one.  */
#define CREATE(name, parameters, arguments)                                                        \
  CUresult vcuda_##name parameters                                                                 \
  {                                                                                                \
    struct vcuda_charge charge;                                                                    \
    VCUDA_PASS_ON (real.name arguments);                                                           \
    vcuda_wait_until_awake ();                                                                     \
    CUresult rc = vcuda_context_begin (&charge, device);                                           \
    if (rc != CUDA_SUCCESS)                                                                        \
      return rc;                                                                                   \
    rc = VCUDA_CALL_WITH_ROOM (vcuda_thread (), charge.gpu, real.name arguments);                  \
    vcuda_current_forget ();                                                                       \
    return vcuda_context_begun (&charge, rc,                                                       \
                                rc == CUDA_SUCCESS ? VCUDA_KEY (VCUDA_CONTEXT, *context) : 0);     \
  }

CREATE (cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device),
        (context, flags, device))
CREATE (cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
        (context, flags, device))
CREATE (cuCtxCreate_v3,
        (CUcontext * context, CUexecAffinityParam *affinity, int count, unsigned int flags,
         CUdevice device),
        (context, affinity, count, flags, device))
CREATE (cuCtxCreate_v4,
        (CUcontext * context, CUctxCreateParams *params, unsigned int flags, CUdevice device),
        (context, params, flags, device))

/* The entry is taken out of the map first: after the call the driver may give the same handle to
   another thread.  */
#define DESTROY(name)                                                                              \
  CUresult vcuda_##name (CUcontext context)                                                        \
  {                                                                                                \
    struct vcuda_allocation entry;                                                                 \
    VCUDA_PASS_ON (real.name (context));                                                           \
    vcuda_meter_settle (context);                                                                  \
    bool known = vcuda_map_take (VCUDA_KEY (VCUDA_CONTEXT, context), &entry);                      \
    CUresult rc = VCUDA_CALL_DRIVER (real.name (context));                                         \
    if (known)                                                                                     \
      vcuda_context_ended (&entry, rc);                                                            \
    if (rc == CUDA_SUCCESS)                                                                        \
      give_back_context (context, false);                                                          \
    return rc;                                                                                     \
  }

DESTROY (cuCtxDestroy)
DESTROY (cuCtxDestroy_v2)

/* Deprecated; the last detach destroys the context.  */
CUresult
vcuda_cuCtxDetach (CUcontext context)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  unsigned int version;
  vcuda_meter_settle (context);
  CUresult rc = real.cuCtxDetach (context);
  if (rc != CUDA_SUCCESS)
    return rc;
  vcuda_current_forget_all ();
  struct vcuda_allocation entry;
  if (real.cuCtxGetApiVersion (context, &version) == CUDA_SUCCESS)
    return rc;
  if (vcuda_map_take (VCUDA_KEY (VCUDA_CONTEXT, context), &entry))
    vcuda_context_ended (&entry, rc);
  give_back_context (context, false);
  return rc;
}

/* A device's primary context. It begins with the first retain and ends when the driver reports it
   inactive. The lock keeps that order while threads retain and release at once.  */
static struct primary
{
  pthread_mutex_t mutex;
  CUcontext handle; /* what the last retain returned; it may have ended since */
  bool live;
} primaries[DEVICES] = {
  [0 ... DEVICES - 1] = { .mutex = PTHREAD_MUTEX_INITIALIZER },
};

static struct primary *
primary_of (CUdevice device)
{
  return device >= 0 && device < DEVICES ? &primaries[device] : NULL;
}

static CUresult
retain (struct primary *primary, CUcontext *context, CUdevice device)
{
  struct vcuda_charge charge;
  bool begins = !primary->live;
  CUresult rc = begins ? vcuda_context_begin (&charge, device) : CUDA_SUCCESS;
  if (rc != CUDA_SUCCESS)
    return rc;
  rc = VCUDA_CALL_WITH_ROOM (vcuda_thread (), begins ? charge.gpu : -1,
                             real.cuDevicePrimaryCtxRetain (context, device));
  if (begins)
    vcuda_context_begun (&charge, rc, VCUDA_KEY (VCUDA_PRIMARY_CONTEXT, device + 1));
  if (rc == CUDA_SUCCESS)
    {
      primary->live = true;
      primary->handle = *context;
    }
  return rc;
}

CUresult
vcuda_cuDevicePrimaryCtxRetain (CUcontext *context, CUdevice device)
{
  struct primary *primary = primary_of (device);
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  if (vcuda_thread ()->in_driver || !primary)
    return real.cuDevicePrimaryCtxRetain (context, device);
  vcuda_wait_until_awake ();
  pthread_mutex_lock (&primary->mutex);
  CUresult rc = retain (primary, context, device);
  pthread_mutex_unlock (&primary->mutex);
  return rc;
}

/* After a release or a reset. The context may go on after either: it may still be retained, and the
   driver decides whether a reset context stays active.  */
static void
after_primary (struct primary *primary, CUdevice device, bool reset)
{
  unsigned int flags;
  int active = 1;
  struct vcuda_allocation entry;
  vcuda_current_forget_all ();
  if (real.cuDevicePrimaryCtxGetState (device, &flags, &active) != CUDA_SUCCESS)
    active = 1;
  if (primary->handle && (reset || !active))
    give_back_context (primary->handle, true);
  if (active || !primary->live)
    return;
  primary->live = false;
  if (vcuda_map_take (VCUDA_KEY (VCUDA_PRIMARY_CONTEXT, device + 1), &entry))
    vcuda_context_ended (&entry, CUDA_SUCCESS);
}

#define END_PRIMARY(name, reset)                                                                   \
  CUresult vcuda_##name (CUdevice device)                                                          \
  {                                                                                                \
    struct primary *primary = primary_of (device);                                                 \
    if (!vcuda_ready ())                                                                           \
      return CUDA_ERROR_SYSTEM_NOT_READY;                                                          \
    if (vcuda_thread ()->in_driver || !primary)                                                    \
      return real.name (device);                                                                   \
    pthread_mutex_lock (&primary->mutex);                                                          \
    /* Before its end, which waits for its work anyway.  */                                        \
    if (reset && primary->handle)                                                                  \
      vcuda_meter_settle (primary->handle);                                                        \
    CUresult rc = VCUDA_CALL_DRIVER (real.name (device));                                          \
    if (rc == CUDA_SUCCESS)                                                                        \
      after_primary (primary, device, reset);                                                      \
    pthread_mutex_unlock (&primary->mutex);                                                        \
    return rc;                                                                                     \
  }

END_PRIMARY (cuDevicePrimaryCtxRelease, false)
END_PRIMARY (cuDevicePrimaryCtxRelease_v2, false)
END_PRIMARY (cuDevicePrimaryCtxReset, true)
END_PRIMARY (cuDevicePrimaryCtxReset_v2, true)

void
vcuda_primaries_forget (void)
{
  for (int device = 0; device < DEVICES; device++)
    primaries[device] = (struct primary){ .mutex = PTHREAD_MUTEX_INITIALIZER };
}
