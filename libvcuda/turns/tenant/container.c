/* A container's pages, mapped.  */

#include "tenant/container.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tenant/mapped.h"

/* Lock queries in one reading, besides one for all other slots: a container may take thousands of
   locks, and every query walks them.  */
#define MOST_QUERIES 16

/* O_NONBLOCK: the container may have leased the page; then the open fails, and is tried again.  */
static int
open_page (const char *state_dir, const char *id, const char *name, int flags, size_t size,
           struct stat *found)
{
  char path[4096];
  int length = snprintf (path, sizeof path, "%s/containers/%s/%s", state_dir, id, name);
  if (length < 0 || (size_t) length >= sizeof path)
    return -1;
  int fd = open (path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return -1;
  if (fstat (fd, found) == 0 && S_ISREG (found->st_mode) && (size_t) found->st_size >= size)
    return fd;
  close (fd);
  return -1;
}

static bool
read_head (struct container *container)
{
  const struct vcuda_limits *limits = container->limits_at;
  container->gpu_count = limits->gpu_count;
  if (limits->magic != VCUDA_LIMITS_MAGIC || container->gpu_count > VCUDA_MAX_GPUS)
    return false;
  for (unsigned gpu = 0; gpu < container->gpu_count; gpu++)
    {
      memcpy (container->uuid[gpu], limits->gpu[gpu].uuid, sizeof container->uuid[gpu]);
      container->uuid[gpu][sizeof container->uuid[gpu] - 1] = 0;
    }
  return true;
}

static void *
map (int fd, size_t size, int access)
{
  void *at = mmap (NULL, size, access, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}

struct container *
container_open (const char *state_dir, const char *id)
{
  struct stat limits, usage;
  struct container *container = calloc (1, sizeof *container);
  if (!container)
    return NULL;
  container->id = strdup (id);
  container->watch = -1;
  container->limits_fd
      = open_page (state_dir, id, "limits", O_RDWR, sizeof (struct vcuda_limits), &limits);
  container->usage_fd
      = open_page (state_dir, id, "usage", O_RDONLY, sizeof (struct vcuda_usage), &usage);
  if (container->id && container->limits_fd >= 0 && container->usage_fd >= 0
      && (container->limits_at
          = map (container->limits_fd, sizeof (struct vcuda_limits), PROT_READ | PROT_WRITE))
      && read_head (container)
      && (container->usage_at = map (container->usage_fd, sizeof (struct vcuda_usage), PROT_READ)))
    {
      container->device = limits.st_dev;
      container->limits_inode = limits.st_ino;
      container->usage_inode = usage.st_ino;
      return container;
    }
  container_close (container);
  return NULL;
}

void
container_close (struct container *container)
{
  if (container->limits_at)
    munmap (container->limits_at, sizeof (struct vcuda_limits));
  if (container->usage_at)
    munmap ((void *) container->usage_at, sizeof (struct vcuda_usage));
  if (container->limits_fd >= 0)
    close (container->limits_fd);
  if (container->usage_fd >= 0)
    close (container->usage_fd);
  free (container->id);
  free (container);
}

static bool
is_at (const char *state_dir, const char *id, const char *name, dev_t device, ino_t inode)
{
  char path[4096];
  struct stat found;
  snprintf (path, sizeof path, "%s/containers/%s/%s", state_dir, id, name);
  return lstat (path, &found) == 0 && found.st_dev == device && found.st_ino == inode;
}

/* A move changes the GPUs that the page names, of a suspended container.  */
static bool
names_same_gpus (const struct container *container)
{
  for (unsigned gpu = 0; gpu < container->gpu_count; gpu++)
    if (strncmp (container->uuid[gpu], container->limits_at->gpu[gpu].uuid,
                 sizeof container->uuid[gpu] - 1)
        != 0)
      return false;
  return true;
}

bool
container_is_current (const struct container *container, const char *state_dir)
{
  return names_same_gpus (container)
         && is_at (state_dir, container->id, "limits", container->device, container->limits_inode)
         && is_at (state_dir, container->id, "usage", container->device, container->usage_inode);
}

/* Processor time of this thread.  */
static uint64_t
spent_ns (void)
{
  struct timespec spent;
  clock_gettime (CLOCK_THREAD_CPUTIME_ID, &spent);
  return (uint64_t) spent.tv_sec * 1000000000ull + (uint64_t) spent.tv_nsec;
}

/* A live process holds a lock on its slot's byte, which the kernel drops when it ends.  */
static bool
has_lock (const struct container *container, unsigned first, unsigned count)
{
  struct flock range = { .l_type = F_WRLCK,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t) (VCUDA_USAGE_LOCK_BASE + first),
                         .l_len = (off_t) count };
  return fcntl (container->usage_fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

bool
container_is_live (const struct container *container, uint64_t *spent)
{
  uint64_t began = spent_ns ();
  bool live = has_lock (container, 0, VCUDA_MAX_PROCESSES);
  *spent = spent_ns () - began;
  return live;
}

bool
container_signals (const struct container *container, unsigned gpu, bool live,
                   struct signals *signals)
{
  const struct vcuda_usage *usage = container->usage_at;
  struct vcuda_usage_gpu entry;
  struct stat found;
  uint32_t used;
  /* What was cut off reads as zero up to the end of its memory page.  */
  if (fstat (container->usage_fd, &found) != 0 || found.st_size < (off_t) sizeof *usage)
    return false;
  /* The bell before the marks: a ring after this read wakes the keeper again.  */
  if (!mapped_read (&entry, &usage->gpu[gpu], sizeof entry)
      || !mapped_read (&used, &usage->slots_used, sizeof used))
    return false;
  *signals = (struct signals){ .bell = entry.bell,
                               .work_begun = entry.work_begun,
                               .busy_until_ns = entry.busy_until_ns,
                               .bucket_ns = entry.balance_ns,
                               .filled_ns = entry.refilled_ns,
                               .busy_ns = entry.busy_ns,
                               .turn_taken = entry.turn_taken,
                               .switch_ns = entry.switch_ns,
                               .room_asked = entry.room_asked };
  uint64_t began = live ? spent_ns () : 0;
  for (unsigned i = 0, queries = 0; i < used && i < VCUDA_MAX_PROCESSES; i++)
    {
      uint64_t marks;
      if (!mapped_read (&marks, &usage->slot[i].turn_marks, sizeof marks))
        return false;
      marks = marks >> (gpu * VCUDA_TURN_MARK_BITS) & ((1 << VCUDA_TURN_MARK_BITS) - 1);
      uint32_t fresh = (uint32_t) marks & ~signals->marks;
      bool clears = marks & VCUDA_TURN_BUSY && marks & (VCUDA_TURN_IN_WAIT | VCUDA_TURN_WANTS);
      /* A query walks all locks of the page: only for what changes the result.  */
      if (!fresh && !(clears && !signals->will_clear))
        continue;
      /* The walks of one reading take little longer than one walk does.  */
      if (live && queries && spent_ns () - began > LONG_QUERY_NS)
        live = false;
      bool last = live && queries++ == MOST_QUERIES;
      if (last && !has_lock (container, i, VCUDA_MAX_PROCESSES - i))
        break;
      live &= !last;
      if (live && !has_lock (container, i, 1))
        continue;
      signals->marks |= (uint32_t) marks;
      signals->will_clear |= clears;
    }
  signals->spent_ns = began ? spent_ns () - began : 0;
  return true;
}
