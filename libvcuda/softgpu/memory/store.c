/* The process's store: one sparse memfd that backs what may be mapped twice, or by others.

   An offset is used once and never again, so a freed range is a hole and can't show old bytes. One
   file serves all, since thousands of allocations would exhaust the process's descriptors.  */

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/store.h"

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static int store_fd = -1;
static _Atomic uint64_t used;

int
softgpu_store (void)
{
  pthread_mutex_lock (&guard);
  if (store_fd < 0)
    {
      store_fd = memfd_create ("softgpu", MFD_CLOEXEC);
      if (store_fd >= 0 && ftruncate (store_fd, (off_t) 1 << 50) != 0)
        {
          close (store_fd);
          store_fd = -1;
        }
    }
  pthread_mutex_unlock (&guard);
  return store_fd;
}

uint64_t
softgpu_store_range (uint64_t bytes)
{
  return atomic_fetch_add (&used, STORE_WHOLE (bytes));
}

void
softgpu_store_drop (uint64_t offset, uint64_t bytes)
{
  fallocate (store_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t) offset, (off_t) bytes);
}

void *
softgpu_map (int fd, uint64_t offset, size_t bytes, void *at, int access)
{
  int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED | MAP_NORESERVE;
  void *map = mmap (at, bytes, access, flags | (at ? MAP_FIXED : 0), fd, (off_t) offset);
  return map == MAP_FAILED ? NULL : map;
}

int
softgpu_export (uint64_t bytes, struct shared_note *note)
{
  int fd = memfd_create ("softgpu-shared", MFD_CLOEXEC);
  if (fd < 0)
    return -1;
  note->magic = SHARED_MAGIC;
  note->bytes = bytes;
  if (ftruncate (fd, (off_t) (bytes + STORE_PAGE)) == 0
      && pwrite (fd, note, sizeof *note, (off_t) bytes) == (ssize_t) sizeof *note)
    return fd;
  close (fd);
  return -1;
}

bool
softgpu_shared_note (int fd, struct shared_note *note)
{
  struct stat file;
  if (fstat (fd, &file) != 0 || file.st_size < (off_t) STORE_PAGE)
    return false;
  off_t at = file.st_size - (off_t) STORE_PAGE;
  return pread (fd, note, sizeof *note, at) == (ssize_t) sizeof *note && note->magic == SHARED_MAGIC
         && note->bytes == (uint64_t) at;
}

int
softgpu_open_others (uint32_t pid, int fd)
{
  char path[64];
  snprintf (path, sizeof path, "/proc/%u/fd/%d", pid, fd);
  return open (path, O_RDWR | O_CLOEXEC);
}
