/* cuInit, versions, and what a fork does to the driver.  */

#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

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

/* What is left to do for a process with a slot.  */
static CUresult
find_devices (void)
{
  int ordered = softgpu_ordered_error (driver.tie.state, "cuInit", 0);
  REQUIRE (!ordered, (CUresult) ordered);
  REQUIRE_SUCCESS (softgpu_join_mps ());
  int usable = 0;
  /* Of MIG devices one process has the first that it sees, and no GPU beside it.  */
  if (driver.tie.mig_count)
    driver.device[usable++].began = driver.tie.gpu[driver.tie.gpu_count];
  else
    for (unsigned i = 0; i < driver.tie.gpu_count; i++)
      if (!driver.tie.state->gpu[driver.tie.gpu[i]].divided)
        driver.device[usable++].began = driver.tie.gpu[i];
  REQUIRE (usable, CUDA_ERROR_NO_DEVICE);
  driver.device_count = usable;
  for (int i = 0; i < usable; i++)
    driver.device[i].primary
        = (struct CUctx_st){ .kind = CONTEXT, .device = i, .primary = true, .id = i + 1u };
  return CUDA_SUCCESS;
}

static CUresult
start (void)
{
  static bool watching_forks;
  REQUIRE (!driver.forked, CUDA_ERROR_NOT_INITIALIZED);
  enum attach_result attached = softgpu_attach (&driver.tie, SOFTGPU_CUDA);
  REQUIRE (attached != ATTACH_FULL, CUDA_ERROR_DEVICE_UNAVAILABLE);
  REQUIRE (attached == ATTACHED, CUDA_ERROR_NO_DEVICE);
  CUresult rc = find_devices ();
  if (rc != CUDA_SUCCESS)
    {
      softgpu_leave_mps ();
      softgpu_detach (&driver.tie);
      return rc;
    }
  if (!watching_forks)
    pthread_atfork (NULL, NULL, in_child);
  watching_forks = true;
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

/* Of the state file that cuInit would attach to; 0: there is none.  */
static int32_t
version_in_file (void)
{
  struct softgpu_paths paths;
  int fd = softgpu_find (&paths) ? open (paths.state, O_RDONLY | O_CLOEXEC) : -1;
  int32_t version = 0;
  if (fd >= 0)
    {
      off_t at = offsetof (struct softgpu_state, cuda_version);
      if (pread (fd, &version, sizeof version, at) != sizeof version)
        version = 0;
      close (fd);
    }
  return version;
}

CUresult
cuDriverGetVersion (int *version)
{
  REQUIRE (version, CUDA_ERROR_INVALID_VALUE);
  /* May be asked before cuInit, and where there is no GPU.  */
  int32_t found = driver.ready ? driver.tie.state->cuda_version : version_in_file ();
  *version = found > 0 ? found : 13000;
  return CUDA_SUCCESS;
}
