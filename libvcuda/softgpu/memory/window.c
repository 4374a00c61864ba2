/* Memory of other processes, and of files, shown in this one.

   A process finds another's memory as a descriptor of that process in /proc, so a killed process
   leaves nothing behind.  */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/window.h"

#define WINDOW_RECORD 0x574f4457u

struct window
{
  uint32_t kind; /* WINDOW_RECORD */
  enum window_kind closes;
  unsigned opened;
  uintptr_t address;
  struct place place; /* zeroes: of a file */
  struct window *next;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct window *windows;

struct place
softgpu_place_in_store (unsigned gpu, uint64_t offset, uint64_t bytes)
{
  const struct softgpu_slot *own = softgpu_own_slot (&driver.tie);
  return (struct place){ .magic = PLACE_MAGIC,
                         .pid = own->pid,
                         .fd = softgpu_store (),
                         .gpu = gpu,
                         .offset = offset,
                         .bytes = bytes,
                         .slot = driver.tie.slot,
                         .generation = own->generation };
}

bool
softgpu_place_of (uintptr_t address, struct place *place)
{
  struct block block;
  if (!softgpu_share_block (address, &block))
    return false;
  *place = softgpu_place_in_store (driver.device[block.device].began, block.offset, block.bytes);
  return true;
}

bool
softgpu_own_place (const struct place *place)
{
  return place->slot == driver.tie.slot
         && place->generation == softgpu_own_slot (&driver.tie)->generation;
}

bool
softgpu_live_place (const struct place *place)
{
  return place->magic == PLACE_MAGIC && place->slot < SOFTGPU_MAX_SLOTS
         && driver.tie.state->slot[place->slot].generation == place->generation
         && softgpu_slot_alive (&driver.tie, place->slot);
}

/* With the guard held. A destroyed context has taken some of its windows along.  */
static struct window **
shown (const struct window *window)
{
  struct block block;
  for (struct window **at = &windows; *at; at = &(*at)->next)
    if (*at == window)
      return softgpu_find_block (window->address, &block) && block.owner == window ? at : NULL;
  return NULL;
}

CUresult
softgpu_open_window (uintptr_t *address, int fd, uint64_t offset, size_t bytes, CUdevice device,
                     enum window_kind kind, const struct place *place)
{
  REQUIRE_CONTEXT (context);
  struct window *window = softgpu_new_record (sizeof *window);
  REQUIRE (window, CUDA_ERROR_OUT_OF_MEMORY);
  size_t before = offset % STORE_PAGE;
  size_t mapped = STORE_WHOLE (before + bytes);
  char *map = softgpu_map (fd, offset - before, mapped, NULL, PROT_READ | PROT_WRITE);
  *window = (struct window){
    .kind = WINDOW_RECORD, .closes = kind, .opened = 1, .address = (uintptr_t) map + before
  };
  if (place)
    window->place = *place;
  struct block block = { .start = window->address,
                         .bytes = bytes,
                         .mapped = mapped,
                         .context = context,
                         .device = device,
                         .where = WINDOW,
                         .fd = -1,
                         .owner = window,
                         .access = UINT64_MAX };
  if (!map || !softgpu_add_block (&block))
    {
      if (map)
        munmap (map, mapped);
      softgpu_retire (window, sizeof *window);
      return CUDA_ERROR_MAP_FAILED;
    }
  pthread_mutex_lock (&guard);
  window->next = windows;
  windows = window;
  pthread_mutex_unlock (&guard);
  *address = window->address;
  return CUDA_SUCCESS;
}

CUresult
softgpu_open_place (uintptr_t *address, const struct place *place, enum window_kind kind)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (place->magic == PLACE_MAGIC && place->bytes, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!softgpu_own_place (place), CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE (softgpu_live_place (place), CUDA_ERROR_INVALID_HANDLE);
  CUdevice device = 0;
  while (device < driver.device_count && driver.device[device].began != place->gpu)
    device++;
  REQUIRE (device < driver.device_count, CUDA_ERROR_INVALID_DEVICE);
  softgpu_own_slot (&driver.tie)->shares_memory = 1;
  pthread_mutex_lock (&guard);
  struct window *known = windows;
  while (known && (memcmp (&known->place, place, sizeof *place) != 0 || !shown (known)))
    known = known->next;
  if (known)
    {
      known->opened++;
      *address = known->address;
    }
  pthread_mutex_unlock (&guard);
  if (known)
    return CUDA_SUCCESS;
  int fd = softgpu_open_others (place->pid, place->fd);
  REQUIRE (fd >= 0, CUDA_ERROR_MAP_FAILED);
  CUresult rc = softgpu_open_window (address, fd, place->offset, place->bytes, device, kind, place);
  close (fd);
  return rc;
}

CUresult
softgpu_close_window (uintptr_t address, enum window_kind kind)
{
  struct block block;
  CUresult rc = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock (&guard);
  if (softgpu_find_block (address, &block) && block.where == WINDOW && block.start == address)
    {
      struct window *window = block.owner;
      struct window **at = shown (window);
      if (at && window->closes == kind)
        {
          rc = CUDA_SUCCESS;
          if (--window->opened == 0)
            {
              *at = window->next;
              softgpu_release (address, WINDOWS);
              softgpu_retire (window, sizeof *window);
            }
        }
    }
  pthread_mutex_unlock (&guard);
  return rc;
}
