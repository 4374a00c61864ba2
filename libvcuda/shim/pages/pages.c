/* Maps the limits page and the usage page. Without both of them every call is refused.  */

#include "pages/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pages/page_fault.h"
#include "thread/message.h"

struct vcuda_pages vcuda_pages;
int vcuda_readiness;
static int claimed; /* by the thread that decides */

/* Map a page of at least SIZE bytes; NULL: it is missing or too short. The file is not kept open,
   because programs close descriptors that they don't know.  */
static void *
map_file (const char *path, size_t size, int open_flags, int protection)
{
  int fd = open (path, open_flags | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return NULL;
  void *page = MAP_FAILED;
  /* fstat's symbol is newer than the C libraries that the shim must load with.  */
  off_t end = lseek (fd, 0, SEEK_END);
  if (end >= 0 && (size_t) end >= size)
    page = mmap (NULL, size, protection, MAP_SHARED, fd, 0);
  close (fd);
  return page == MAP_FAILED ? NULL : page;
}

static bool
limits_sound (const struct vcuda_limits *limits)
{
  return limits->magic == VCUDA_LIMITS_MAGIC && limits->version >= VCUDA_ABI_VERSION
         && limits->size >= sizeof *limits && limits->gpu_count <= VCUDA_MAX_GPUS
         && limits->driver_dir[0] == '/'
         && memchr (limits->driver_dir, 0, sizeof limits->driver_dir);
}

static bool
usage_sound (const struct vcuda_usage *usage)
{
  return usage->magic == VCUDA_USAGE_MAGIC && usage->version >= VCUDA_ABI_VERSION
         && usage->size >= sizeof *usage;
}

#define NO_CALL "no GPU call is allowed; start the container again"

bool
vcuda_pages_map (void)
{
  int saved = errno;
  struct vcuda_limits *limits = map_file (VCUDA_GUEST_LIMITS, sizeof *limits, O_RDONLY, PROT_READ);
  struct vcuda_usage *usage
      = map_file (VCUDA_GUEST_USAGE, sizeof *usage, O_RDWR, PROT_READ | PROT_WRITE);
  const char *wrong = NULL;
  if (!limits)
    wrong = VCUDA_LINE (VCUDA_GUEST_DIR, "'limits' is missing or too short", NO_CALL);
  else if (!limits_sound (limits))
    wrong = VCUDA_LINE (VCUDA_GUEST_DIR, "'limits' is malformed", NO_CALL);
  else if (!usage)
    wrong = VCUDA_LINE (VCUDA_GUEST_DIR, "'usage' is missing, too short or not writable", NO_CALL);
  else if (!usage_sound (usage))
    wrong = VCUDA_LINE (VCUDA_GUEST_DIR, "'usage' is malformed", NO_CALL);

  /* No lock: this may run under the loader's lock, and a thread that holds a lock of the shim may
     wait for the loader. Several threads may map the pages; one wins and the others unmap.  */
  int expected = 0;
  bool won = __atomic_compare_exchange_n (&claimed, &expected, 1, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE);
  if (won && !wrong)
    {
      vcuda_pages.usage = usage;
      vcuda_watch_page (usage);
      __atomic_store_n (&vcuda_pages.limits, limits, __ATOMIC_RELEASE);
      __atomic_store_n (&vcuda_readiness, VCUDA_READY, __ATOMIC_RELEASE);
    }
  else
    {
      if (limits)
        munmap (limits, sizeof *limits);
      if (usage)
        munmap (usage, sizeof *usage);
      if (won)
        {
          vcuda_report (wrong);
          __atomic_store_n (&vcuda_readiness, VCUDA_REFUSED, __ATOMIC_RELEASE);
        }
    }
  /* The winner is a few instructions from its store. The wait is bounded, because a fork may have
     cut the winner off here: then the call is refused.  */
  int readiness = __atomic_load_n (&vcuda_readiness, __ATOMIC_ACQUIRE);
  for (int tries = 0; readiness == VCUDA_UNKNOWN && tries < 1000; tries++)
    {
      usleep (50);
      readiness = __atomic_load_n (&vcuda_readiness, __ATOMIC_ACQUIRE);
    }
  errno = saved;
  return readiness == VCUDA_READY;
}
