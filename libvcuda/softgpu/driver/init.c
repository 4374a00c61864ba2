/* cuInit, versions, and what a fork does to the driver.  */

#include "driver/driver.h"
#include "driver/mps_client.h"

_Atomic (softgpu_notice) softgpu_on_progress;
struct driver driver = { .tie = { .fd = -1 } };

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

/* As with the real driver, a child of an initialised process can't go on with its parent's GPU
   state: it gets CUDA_ERROR_NOT_INITIALIZED until it execs.  */
static void
in_child (void)
{
  driver.ready = 0;
  driver.forked = true;
  softgpu_forget (&driver.tie);
  softgpu_leave_mps ();
}

static CUresult
start (void)
{
  static bool watching_forks;
  REQUIRE (!driver.forked, CUDA_ERROR_NOT_INITIALIZED);
  switch (softgpu_attach (&driver.tie, SOFTGPU_CUDA))
    {
    case ATTACHED:
      break;
    case ATTACH_FULL:
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case ATTACH_NO_PERMISSION:
    case ATTACH_NO_DRIVER:
      return CUDA_ERROR_NO_DEVICE;
    }
  int ordered = softgpu_ordered_error (driver.tie.state, "cuInit", 0);
  if (ordered)
    {
      softgpu_detach (&driver.tie);
      return (CUresult) ordered;
    }
  CUresult joined = softgpu_join_mps ();
  if (joined != CUDA_SUCCESS)
    {
      softgpu_detach (&driver.tie);
      return joined;
    }
  unsigned usable = 0;
  /* Of MIG devices one process has the first that it sees, and no GPU beside it.  */
  if (driver.tie.mig_count)
    driver.device[usable++].began = driver.tie.gpu[driver.tie.gpu_count];
  else
    for (unsigned i = 0; i < driver.tie.gpu_count; i++)
      if (!driver.tie.state->gpu[driver.tie.gpu[i]].divided)
        driver.device[usable++].began = driver.tie.gpu[i];
  if (usable == 0)
    {
      softgpu_leave_mps ();
      softgpu_detach (&driver.tie);
      return CUDA_ERROR_NO_DEVICE;
    }
  if (!watching_forks)
    pthread_atfork (NULL, NULL, in_child);
  watching_forks = true;
  driver.device_count = (int) usable;
  for (int i = 0; i < driver.device_count; i++)
    {
      struct device *device = &driver.device[i];
      device->primary
          = (struct CUctx_st){ .kind = CONTEXT, .device = i, .primary = true, .id = i + 1u };
    }
  driver.ready = 1;
  return CUDA_SUCCESS;
}

CUresult
cuInit (unsigned int flags)
{
  REQUIRE (flags == 0, CUDA_ERROR_INVALID_VALUE);
  if (driver.ready)
    return CUDA_SUCCESS;
  pthread_mutex_lock (&starting);
  CUresult rc = driver.ready ? CUDA_SUCCESS : start ();
  pthread_mutex_unlock (&starting);
  return rc;
}

CUresult
cuDriverGetVersion (int *version)
{
  REQUIRE (version, CUDA_ERROR_INVALID_VALUE);
  /* May be asked before cuInit, and where there is no GPU.  */
  *version = driver.ready ? driver.tie.state->cuda_version : 13000;
  return CUDA_SUCCESS;
}
