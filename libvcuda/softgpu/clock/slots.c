/* The clock's file, its thread slots, and which of them are alive.  */

#include "clock/slots.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock/raw_call.h"

#define LOCK_BASE (1ll << 40) /* beyond the file's end: a lock needs no content there */

struct softclock *softclock_shared;
static int lock_fd = -1;
static bool mine[SOFTCLOCK_SLOTS];
static uint64_t patience_ns;

void
softclock_fail (const char *why)
{
  fprintf (stderr, "softclock: %s; see \"A virtual clock\" in docs/softgpu.md\n", why);
  _exit (97);
}

static struct flock
slot_lock (uint32_t number)
{
  return (struct flock){
    .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t) (LOCK_BASE + number), .l_len = 1
  };
}

bool
softclock_lock_slot (uint32_t number)
{
  struct flock life = slot_lock (number);
  mine[number - 1] = fcntl (lock_fd, F_OFD_SETLK, &life) == 0;
  return mine[number - 1];
}

bool
softclock_mine (uint32_t number)
{
  return mine[number - 1];
}

/* F_OFD_GETLK does not report a lock of the same open file.  */
bool
softclock_alive (uint32_t number)
{
  struct flock life = slot_lock (number);
  return softclock_mine (number) || fcntl (lock_fd, F_OFD_GETLK, &life) != 0
         || life.l_type != F_UNLCK;
}

void
softclock_keep_patience (struct patience *patience)
{
  struct timespec real;
  SOFTCLOCK_RAW (SYS_clock_gettime, CLOCK_MONOTONIC, &real, 0, 0);
  uint64_t now = softclock_nanoseconds (&real);
  uint32_t owner = atomic_load (&softclock_shared->owner);
  uint64_t virtual_now = atomic_load (&softclock_shared->now_ns);
  if (!patience->since_ns || patience->owner != owner || patience->now_ns != virtual_now)
    *patience = (struct patience){ .since_ns = now, .now_ns = virtual_now, .owner = owner };
  else if (now - patience->since_ns > patience_ns)
    softclock_fail (owner ? "one thread has run for too long: it waits for something other than"
                            " time, or never reads the clock"
                          : "not all processes have joined");
}

void
softclock_open (const char *path, uint64_t patience_s)
{
  patience_ns = patience_s * SECOND_NS;
  int fd = open (path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  /* The locks get an open file of their own: a mapping keeps its open file, and a forked child
     inherits the mapping. Its descriptor is high, because the kernel closes the descriptors of a
     dead process in ascending order: all others are closed before the clock continues.  */
  int locks = open (path, O_RDWR | O_CLOEXEC);
  lock_fd = fcntl (locks, F_DUPFD_CLOEXEC, 900);
  if (lock_fd < 0 || close (locks) != 0 || ftruncate (fd, sizeof *softclock_shared) != 0)
    softclock_fail ("cannot open the file that SOFTCLOCK names");
  softclock_shared
      = mmap (NULL, sizeof *softclock_shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (softclock_shared == MAP_FAILED)
    softclock_fail ("cannot map the file that SOFTCLOCK names");
  close (fd);
}

void
softclock_close (void)
{
  close (lock_fd);
  lock_fd = -1;
  softclock_shared = NULL;
}
