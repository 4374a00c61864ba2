/* Checkpoints that a program of the container makes of itself or of another process in it.

   What a checkpoint has taken off the GPU is not counted: off_gpu of the usage page has a bit for
   the process's slot. The bit is set after the driver's checkpoint, and taken away before its
   restore, if all the bytes fit then. So whichever process is killed in between, what is on the GPU
   is counted; what is off it may be counted until its process is restored or ends. With custom
   storage the bytes leave the GPU by cuCheckpointOperationComplete, and are on it from the call of
   the restore on.

   While the host has suspended the container, or is about to, these calls wait: the host brings
   each process back to the state in which it found it.  */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "charge/charge.h"
#include "charge/pools_held.h"
#include "context/forget.h"
#include "pages/slot.h"
#include "pages/suspended.h"
#include "thread/in_driver.h"

static bool
is_checkpointed (int pid)
{
  CUprocessState state;
  return real.cuCheckpointProcessGetState (pid, &state) == CUDA_SUCCESS
         && state == CU_PROCESS_STATE_CHECKPOINTED;
}

/* Before a call that changes a process's state.  */
static bool
begin (void)
{
  if (!vcuda_ready ())
    return false;
  vcuda_wait_until_awake ();
  return true;
}

CUresult
vcuda_cuCheckpointProcessLock (int pid, CUcheckpointLockArgs *args)
{
  return begin () ? real.cuCheckpointProcessLock (pid, args) : CUDA_ERROR_SYSTEM_NOT_READY;
}

CUresult
vcuda_cuCheckpointProcessUnlock (int pid, CUcheckpointUnlockArgs *args)
{
  return begin () ? real.cuCheckpointProcessUnlock (pid, args) : CUDA_ERROR_SYSTEM_NOT_READY;
}

/* Checkpoints to custom storage that this process has begun, the last one first.  */
struct copy
{
  CUcheckpointOperationHandle handle;
  int pid;
  struct copy *next;
};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct copy *copies;

/* Without memory for it the process stays counted.  */
static void
add_copy (CUcheckpointOperationHandle handle, int pid)
{
  struct copy *copy = malloc (sizeof *copy);
  if (!copy)
    return;
  vcuda_lock (&mutex);
  *copy = (struct copy){ handle, pid, copies };
  copies = copy;
  vcuda_unlock (&mutex);
}

/* The process that HANDLE copies, which is forgotten; 0: it is no checkpoint's.  */
static int
take_copy (CUcheckpointOperationHandle handle)
{
  vcuda_lock (&mutex);
  struct copy **at = &copies;
  while (*at && (*at)->handle != handle)
    at = &(*at)->next;
  struct copy *copy = *at;
  int pid = copy ? copy->pid : 0;
  if (copy)
    *at = copy->next;
  vcuda_unlock (&mutex);
  free (copy);
  return pid;
}

void
vcuda_checkpoints_forget (void)
{
  mutex = (pthread_mutex_t) PTHREAD_MUTEX_INITIALIZER;
  copies = NULL;
}

static void
count_off (int pid)
{
  int at = vcuda_slot_of_process (pid);
  if (at >= 0 && is_checkpointed (pid))
    vcuda_slot_set_off ((unsigned) at, true);
}

CUresult
vcuda_cuCheckpointProcessCheckpoint (int pid, CUcheckpointCheckpointArgs *args)
{
  if (!begin ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = VCUDA_CALL_DRIVER (real.cuCheckpointProcessCheckpoint (pid, args));
  if (rc == CUDA_SUCCESS && args && args->customStorageInfo_out)
    add_copy ((*args->customStorageInfo_out)->handle, pid);
  else if (rc == CUDA_SUCCESS)
    count_off (pid);
  return rc;
}

CUresult
vcuda_cuCheckpointOperationComplete (CUcheckpointOperationHandle handle)
{
  if (!begin ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  /* The driver may use the handle again at once.  */
  int pid = take_copy (handle);
  CUresult rc = VCUDA_CALL_DRIVER (real.cuCheckpointOperationComplete (handle));
  if (rc == CUDA_SUCCESS && pid)
    count_off (pid);
  else if (pid)
    add_copy (handle, pid);
  return rc;
}

/* The process's own books would name the GPUs that it has left.  */
static bool
moves (const CUcheckpointRestoreArgs *args)
{
  for (unsigned i = 0; args && args->gpuPairs && i < args->gpuPairsCount; i++)
    if (memcmp (&args->gpuPairs[i].oldUuid, &args->gpuPairs[i].newUuid, sizeof (CUuuid)) != 0)
      return true;
  return false;
}

static CUresult
count_again (unsigned at)
{
  CUresult rc = vcuda_count_again (at);
  for (int gpu = 0; rc == CUDA_ERROR_OUT_OF_MEMORY && gpu < (int) vcuda_gpu_count (); gpu++)
    if (vcuda_pools_trim (gpu))
      rc = vcuda_count_again (at);
  for (int gpu = 0; rc == CUDA_ERROR_OUT_OF_MEMORY && gpu < (int) vcuda_gpu_count (); gpu++)
    if (__atomic_load_n (&vcuda_pages.usage->slot[at].held_bytes[gpu], __ATOMIC_RELAXED))
      vcuda_count_refusal (gpu);
  return rc;
}

CUresult
vcuda_cuCheckpointProcessRestore (int pid, CUcheckpointRestoreArgs *args)
{
  if (!begin ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  if (moves (args))
    return CUDA_ERROR_NOT_SUPPORTED;
  int at = vcuda_slot_of_process (pid);
  bool was_off = at >= 0 && vcuda_slot_is_off ((unsigned) at);
  CUresult rc = was_off ? count_again ((unsigned) at) : CUDA_SUCCESS;
  if (rc != CUDA_SUCCESS)
    return rc;
  rc = VCUDA_CALL_DRIVER (real.cuCheckpointProcessRestore (pid, args));
  if (rc != CUDA_SUCCESS && was_off && is_checkpointed (pid))
    vcuda_slot_set_off ((unsigned) at, true);
  return rc;
}
