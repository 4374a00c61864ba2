/* The list of a process's device memory: what is in it, and how another process reads it.  */

#include "memory/parts.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/store.h"

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct parts *own;
static uint32_t lowest; /* no entry below is empty */

bool
softgpu_lists_parts (void)
{
  return atoi (driver.tie.state->driver_version) >= CUSTOM_STORAGE_MAJOR;
}

/* With the guard held.  */
static bool
begin_list (void)
{
  if (own)
    return true;
  uint64_t offset = softgpu_store_range (sizeof *own);
  int fd = softgpu_store ();
  own = fd < 0 ? NULL : softgpu_map (fd, offset, sizeof *own, NULL, PROT_READ | PROT_WRITE);
  if (!own)
    return false;
  struct softgpu_slot *slot = softgpu_own_slot (&driver.tie);
  slot->parts_offset = offset;
  slot->parts_fd = (uint32_t) fd + 1;
  return true;
}

void
softgpu_list_part (CUdevice device, int fd, uint64_t offset, uint64_t bytes)
{
  if (!softgpu_lists_parts ())
    return;
  pthread_mutex_lock (&guard);
  if (begin_list ())
    {
      uint32_t at = lowest;
      while (at < own->used && own->part[at].bytes)
        at++;
      lowest = at;
      if (at < SOFTGPU_PARTS && fd >= 0)
        {
          struct part *part = &own->part[at];
          part->offset = offset;
          part->fd = fd;
          part->began = driver.device[device].began;
          part->bytes = bytes;
          if (at == own->used)
            own->used = at + 1;
        }
      else
        own->missed = 1;
    }
  pthread_mutex_unlock (&guard);
}

void
softgpu_unlist_part (int fd, uint64_t offset)
{
  pthread_mutex_lock (&guard);
  for (uint32_t at = 0; own && at < own->used; at++)
    if (own->part[at].bytes && own->part[at].fd == fd && own->part[at].offset == offset)
      {
        own->part[at].bytes = 0;
        lowest = at < lowest ? at : lowest;
        break;
      }
  pthread_mutex_unlock (&guard);
}

void *
softgpu_map_part (CUdevice device, size_t bytes, void *at, int *fd, uint64_t *offset)
{
  *fd = softgpu_lists_parts () ? softgpu_store () : -1;
  *offset = *fd < 0 ? 0 : softgpu_store_range (bytes);
  void *map = softgpu_map (*fd, *offset, bytes, at, PROT_READ | PROT_WRITE);
  if (map)
    softgpu_list_part (device, *fd, *offset, bytes);
  return map;
}

const struct parts *
softgpu_open_parts (int pid, const struct softgpu_slot *slot, int *fd)
{
  static const struct parts none;
  *fd = -1;
  if (!slot->parts_fd)
    return &none;
  *fd = softgpu_open_others ((uint32_t) pid, (int) slot->parts_fd - 1);
  const struct parts *parts
      = *fd < 0 ? NULL : softgpu_map (*fd, slot->parts_offset, sizeof *parts, NULL, PROT_READ);
  if (parts && parts->missed)
    {
      softgpu_close_parts (parts, *fd);
      return NULL;
    }
  if (!parts && *fd >= 0)
    close (*fd);
  return parts;
}

void
softgpu_close_parts (const struct parts *parts, int fd)
{
  if (fd < 0)
    return;
  munmap ((void *) (uintptr_t) parts, sizeof *parts);
  close (fd);
}
