/* Events between processes.  */

#include "stream/ipc_event.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "memory/window.h"

void
softgpu_publish_record (CUevent event)
{
  struct shared_event *shared = event->shared;
  shared->record = event->record;
  shared->slot = driver.tie.slot;
  shared->generation = softgpu_own_slot (&driver.tie)->generation;
}

bool
softgpu_recorded_elsewhere (CUevent event)
{
  const struct shared_event *shared = event->shared;
  return shared && shared->generation
         && (shared->slot != driver.tie.slot
             || shared->generation != softgpu_own_slot (&driver.tie)->generation);
}

/* A number that was never given out would be looked up in a later command's entry.  */
static bool
record_done (const struct shared_event *shared)
{
  struct softgpu_state *state = driver.tie.state;
  uint64_t record = shared->record;
  return record == 0 || record > softgpu_queue (state, shared->gpu, shared->slot)->head
         || softgpu_command_done (state, shared->gpu, shared->slot, record - 1);
}

/* The work of a dead process counts as done.  */
bool
softgpu_done_elsewhere (CUevent event)
{
  const struct shared_event *shared = event->shared;
  struct softgpu_state *state = driver.tie.state;
  if (shared->slot >= SOFTGPU_MAX_SLOTS || shared->gpu >= state->gpu_count)
    return true;
  softgpu_lock (&driver.tie);
  softgpu_advance (state, shared->gpu, softgpu_now ());
  const struct softgpu_slot *slot = &state->slot[shared->slot];
  bool done = slot->generation != shared->generation || record_done (shared);
  softgpu_unlock (&driver.tie);
  return done || !softgpu_slot_alive (&driver.tie, shared->slot);
}

void
softgpu_wait_elsewhere (CUevent event)
{
  while (!softgpu_done_elsewhere (event))
    nanosleep (&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

CUresult
cuIpcGetEventHandle (CUipcEventHandle *handle, CUevent event)
{
  REQUIRE_DRIVER ();
  REQUIRE (event && event->kind == EVENT, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (handle && event->flags & CU_EVENT_INTERPROCESS, CUDA_ERROR_INVALID_VALUE);
  unsigned gpu = gpu_index (event->context->device);
  if (!event->shared)
    {
      event->shared_offset = softgpu_store_range (STORE_PAGE);
      struct shared_event *shared = softgpu_map (softgpu_store (), event->shared_offset, STORE_PAGE,
                                                 NULL, PROT_READ | PROT_WRITE);
      REQUIRE (shared, CUDA_ERROR_OUT_OF_MEMORY);
      shared->gpu = gpu;
      event->shared = shared;
      if (event->recorded)
        softgpu_publish_record (event);
    }
  struct place place = softgpu_place_in_store (gpu, event->shared_offset, STORE_PAGE);
  memset (handle, 0, sizeof *handle);
  memcpy (handle, &place, sizeof place);
  return CUDA_SUCCESS;
}

CUresult
cuIpcOpenEventHandle (CUevent *event, CUipcEventHandle handle)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (event, CUDA_ERROR_INVALID_VALUE);
  struct place place;
  memcpy (&place, &handle, sizeof place);
  REQUIRE (place.magic == PLACE_MAGIC, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!softgpu_own_place (&place), CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE (softgpu_live_place (&place), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (gpu_index (context->device) == place.gpu, CUDA_ERROR_INVALID_CONTEXT);
  int fd = softgpu_open_others (place.pid, place.fd);
  REQUIRE (fd >= 0, CUDA_ERROR_MAP_FAILED);
  void *shared = softgpu_map (fd, place.offset, STORE_PAGE, NULL, PROT_READ | PROT_WRITE);
  close (fd);
  REQUIRE (shared, CUDA_ERROR_MAP_FAILED);
  CUresult rc = cuEventCreate (event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  if (rc == CUDA_SUCCESS)
    (*event)->shared = shared;
  else
    munmap (shared, STORE_PAGE);
  return rc;
}
