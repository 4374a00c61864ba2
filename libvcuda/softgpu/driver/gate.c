/* Checks before a call, while the process's attention word is set: a lock by
   cuCheckpointProcessLock, an ordered failure, a lost GPU.  */

#include <string.h>
#include <time.h>

#include "driver/driver.h"
#include "engine/process_state.h"

/* Calls that do not need the GPU.  */
static bool
needs_no_gpu (const char *name)
{
  static const char *const prefixes[]
      = { "cuInit",          "cuDriverGetVersion", "cuGetError",       "cuGetProcAddress",
          "cuDeviceGet",     "cuCtxGetCurrent",    "cuCtxSetCurrent",  "cuCtxPushCurrent",
          "cuCtxPopCurrent", "cuCtxGetDevice",     "cuDeviceTotalMem", "cuCheckpoint" };
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (strncmp (name, prefixes[i], strlen (prefixes[i])) == 0)
      return true;
  return false;
}

/* Called before every exported call while the attention word is set: the error that the call NAME
   must return; 0: it may go on.  */
int softgpu_gate (const char *name);

int
softgpu_gate (const char *name)
{
  if (!driver.ready)
    return 0;
  struct softgpu_slot *own = softgpu_own_slot (&driver.tie);
  if (own->fault && !needs_no_gpu (name))
    return (int) own->fault;
  bool of_checkpoint = strncmp (name, "cuCheckpoint", strlen ("cuCheckpoint")) == 0;
  while (!of_checkpoint && own->checkpoint != SOFTGPU_PROCESS_RUNNING)
    nanosleep (&(struct timespec){ .tv_nsec = 1000000 }, NULL);
  /* A lock waits for a call that hangs.  */
  own->calls += !of_checkpoint;
  int error = softgpu_ordered_error (driver.tie.state, name, 0);
  own->calls -= !of_checkpoint;
  CUcontext context = softgpu_current_context ();
  if (!error && context && gpu_of (context->device)->lost && !needs_no_gpu (name))
    error = CUDA_ERROR_DEVICE_UNAVAILABLE;
  return error;
}
