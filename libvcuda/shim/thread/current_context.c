/* Calls that may change a thread's current context: they clear the thread's remembered context.  */

#include "thread/current_context.h"

uint32_t vcuda_current_epoch;

void
vcuda_current_forget_all (void)
{
  __atomic_fetch_add (&vcuda_current_epoch, 1, __ATOMIC_ACQ_REL);
}

bool
vcuda_enter_context (CUcontext context)
{
  return context != vcuda_thread ()->current.context
         && real.cuCtxPushCurrent_v2 (context) == CUDA_SUCCESS;
}

void
vcuda_leave_context (bool entered)
{
  CUcontext ignored;
  if (entered)
    real.cuCtxPopCurrent_v2 (&ignored);
}

#define CHANGES(name, parameters, arguments)                                                       \
  CUresult vcuda_##name parameters                                                                 \
  {                                                                                                \
    CUresult rc = real.name arguments;                                                             \
    vcuda_current_forget ();                                                                       \
    return rc;                                                                                     \
  }

/* Programs often set the context that is current already: keep what is known then.  */
CUresult
vcuda_cuCtxSetCurrent (CUcontext context)
{
  CUresult rc = real.cuCtxSetCurrent (context);
  if (rc != CUDA_SUCCESS || context != vcuda_thread ()->current.context)
    vcuda_current_forget ();
  return rc;
}

CHANGES (cuCtxPushCurrent, (CUcontext context), (context))
CHANGES (cuCtxPushCurrent_v2, (CUcontext context), (context))
CHANGES (cuCtxPopCurrent, (CUcontext * context), (context))
CHANGES (cuCtxPopCurrent_v2, (CUcontext * context), (context))
CHANGES (cuCtxAttach, (CUcontext * context, unsigned int flags), (context, flags))
