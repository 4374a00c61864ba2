/* Checkpoints to custom storage, and restores from it.

   All memory that a process has on a GPU is mapped into the caller, one range of addresses for each
   GPU, until cuCheckpointOperationComplete. So the caller's copies take the bytes from the process
   itself, and put them back there. A restore begins with empty memory.

   Mappings and handle are the caller's; the process's slot names the caller: see
   engine/process_state.h.  */

#include "checkpoint/storage.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/parts.h"
#include "memory/store.h"
#include "stream/streams.h"

struct CUIcheckpointOperation_st
{
  CUcheckpointCustomStorageInfo info;
  CUcheckpointCustomStoragePerDeviceData data[SOFTGPU_MAX_GPUS];
  struct target_process target;
  enum softgpu_process_state copies;
  CUcheckpointOperationHandle next;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static CUcheckpointOperationHandle operations; /* not completed, by next */

/* The device that is GPU; -1: its primary context is not retained.  */
static CUdevice
retained_on (unsigned gpu)
{
  CUdevice device = device_of_gpu (gpu);
  return device >= 0 && driver.device[device].primary.retained ? device : -1;
}

static CUresult
check_contexts (const struct softgpu_slot *slot, const unsigned moves[])
{
  for (unsigned gpu = 0; gpu < driver.tie.state->entries; gpu++)
    if (softgpu_uses_gpu (slot, gpu))
      REQUIRE (retained_on (moves[gpu]) >= 0, CUDA_ERROR_INVALID_CONTEXT);
  return CUDA_SUCCESS;
}

/* Maps PART at the address AT. STORE: the file that holds most parts.  */
static bool
map_part (int pid, const struct softgpu_slot *slot, const struct part *part, int store, char *at)
{
  bool in_store = part->fd == (int) slot->parts_fd - 1;
  int fd = in_store ? store : softgpu_open_others ((uint32_t) pid, part->fd);
  bool mapped = fd >= 0 && softgpu_map (fd, part->offset, part->bytes, at, PROT_READ | PROT_WRITE);
  if (!in_store && fd >= 0)
    close (fd);
  return mapped;
}

static CUresult
make_stream (CUstream *stream, CUdevice device)
{
  softgpu_push_context (&driver.device[device].primary);
  CUresult rc = cuStreamCreate (stream, CU_STREAM_NON_BLOCKING);
  softgpu_pop_context ();
  return rc;
}

/* Maps what the process has on GPU, and fills DATA; size 0: it has nothing there.  */
static CUresult
map_gpu (CUcheckpointCustomStoragePerDeviceData *data, int pid, const struct softgpu_slot *slot,
         const struct parts *parts, int store, unsigned gpu, CUdevice device)
{
  *data = (CUcheckpointCustomStoragePerDeviceData){ 0 };
  for (uint32_t i = 0; i < parts->used; i++)
    if (parts->part[i].bytes && slot->place[parts->part[i].began] == gpu)
      data->size += parts->part[i].bytes;
  if (!data->size)
    return CUDA_SUCCESS;
  char *start = softgpu_map (-1, 0, data->size, NULL, PROT_NONE), *at = start;
  REQUIRE (start, CUDA_ERROR_MAP_FAILED);
  bool mapped = true;
  for (uint32_t i = 0; mapped && i < parts->used; i++)
    if (parts->part[i].bytes && slot->place[parts->part[i].began] == gpu)
      {
        mapped = map_part (pid, slot, &parts->part[i], store, at);
        at += parts->part[i].bytes;
      }
  struct block block = { .start = (uintptr_t) start,
                         .bytes = data->size,
                         .mapped = data->size,
                         .context = &driver.device[device].primary,
                         .device = device,
                         .where = WINDOW,
                         .fd = -1,
                         .access = UINT64_MAX };
  if (!mapped || !softgpu_add_block (&block))
    {
      munmap (start, data->size);
      return CUDA_ERROR_MAP_FAILED;
    }
  data->devPtr = block.start;
  return make_stream (&data->stream, device);
}

static void
end_operation (CUcheckpointOperationHandle operation)
{
  for (unsigned i = 0; i < operation->info.deviceCount; i++)
    {
      softgpu_release (operation->data[i].devPtr, WINDOWS);
      if (operation->data[i].stream)
        cuStreamDestroy_v2 (operation->data[i].stream);
    }
  free (operation);
}

CUresult
softgpu_map_target (int pid, const struct target_process *target,
                    const unsigned moves[SOFTGPU_MAX_ENTRIES],
                    enum softgpu_process_state step_state, CUcheckpointCustomStorageInfo **out)
{
  const struct softgpu_slot *slot = softgpu_target_slot (target);
  REQUIRE_SUCCESS (check_contexts (slot, moves));
  int store;
  const struct parts *parts = softgpu_open_parts (pid, slot, &store);
  REQUIRE (parts, CUDA_ERROR_MAP_FAILED);
  CUcheckpointOperationHandle made = calloc (1, sizeof *made);
  CUresult rc = made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  for (unsigned gpu = 0; rc == CUDA_SUCCESS && gpu < driver.tie.state->entries; gpu++)
    {
      if (!softgpu_uses_gpu (slot, gpu))
        continue;
      CUcheckpointCustomStoragePerDeviceData *data = &made->data[made->info.deviceCount];
      rc = map_gpu (data, pid, slot, parts, store, gpu, retained_on (moves[gpu]));
      made->info.deviceCount += data->devPtr != 0;
    }
  softgpu_close_parts (parts, store);
  if (rc != CUDA_SUCCESS)
    {
      if (made)
        end_operation (made);
      return rc;
    }
  made->info.handle = made;
  made->info.perDeviceData = made->data;
  made->target = *target;
  made->copies = step_state;
  pthread_mutex_lock (&guard);
  made->next = operations;
  operations = made;
  pthread_mutex_unlock (&guard);
  *out = &made->info;
  return CUDA_SUCCESS;
}

void
softgpu_empty_target (const CUcheckpointCustomStorageInfo *info)
{
  for (unsigned i = 0; i < info->deviceCount; i++)
    madvise ((void *) info->perDeviceData[i].devPtr, info->perDeviceData[i].size, MADV_REMOVE);
}

bool
softgpu_copies_for (unsigned slot)
{
  const struct softgpu_state *state = driver.tie.state;
  for (unsigned i = 0; i < state->slots_used; i++)
    if (state->slot[i].copier == slot + 1)
      return true;
  return false;
}

static CUresult
wait_for_copies (CUcheckpointOperationHandle operation)
{
  for (unsigned i = 0; i < operation->info.deviceCount; i++)
    {
      CUstream stream = operation->data[i].stream;
      REQUIRE (valid_stream (stream) && valid_context (stream->context), CUDA_ERROR_ILLEGAL_STATE);
      REQUIRE_SUCCESS (softgpu_drain_stream (stream));
    }
  return CUDA_SUCCESS;
}

static CUresult
complete (CUcheckpointOperationHandle operation)
{
  softgpu_lock (&driver.tie);
  struct softgpu_slot *slot = softgpu_target_slot (&operation->target);
  CUresult rc = slot ? softgpu_begin_step (slot, SOFTGPU_COMPLETE, operation->copies)
                     : CUDA_ERROR_ILLEGAL_STATE;
  if (rc == CUDA_SUCCESS)
    softgpu_end_custom_copy (slot, operation->copies == SOFTGPU_PROCESS_CHECKPOINTING
                                       ? SOFTGPU_PROCESS_CHECKPOINTED
                                       : SOFTGPU_PROCESS_LOCKED);
  softgpu_unlock (&driver.tie);
  return rc;
}

/* A call that fails before its streams are done can be made again.  */
CUresult
cuCheckpointOperationComplete (CUcheckpointOperationHandle handle)
{
  REQUIRE_DRIVER ();
  pthread_mutex_lock (&guard);
  CUcheckpointOperationHandle known = operations;
  while (known && known != handle)
    known = known->next;
  UNLINK (operations, known, next)
  pthread_mutex_unlock (&guard);
  REQUIRE (known, CUDA_ERROR_INVALID_VALUE);
  CUresult rc = wait_for_copies (handle);
  if (rc != CUDA_SUCCESS)
    {
      pthread_mutex_lock (&guard);
      handle->next = operations;
      operations = handle;
      pthread_mutex_unlock (&guard);
      return rc;
    }
  rc = complete (handle);
  end_operation (handle);
  return rc;
}
