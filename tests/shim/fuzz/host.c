/* The fuzz target's host: the two pages, in a mount namespace.  */

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

struct vcuda_limits *limits;
struct vcuda_usage *usage;

/* Both pages as the host makes them: a slice of one GPU, half of its time.  */
void
host_make_pages (void)
{
  memset (limits, 0, sizeof *limits);
  *limits = (struct vcuda_limits){ .magic = VCUDA_LIMITS_MAGIC,
                                   .version = VCUDA_ABI_VERSION,
                                   .size = sizeof *limits,
                                   .gpu_count = 1,
                                   .driver_dir = "/usr/local/vcuda/none" };
  limits->gpu[0] = (struct vcuda_limits_gpu){ .uuid = "GPU-01010101-0101-0101-0101-010101010101",
                                              .memory_bytes = LIMIT,
                                              .core_percent = 50,
                                              .core_ceiling_percent = 50,
                                              .rate_ppm = 500000 };
  memset (usage, 0, sizeof *usage);
  usage->magic = VCUDA_USAGE_MAGIC;
  usage->version = VCUDA_ABI_VERSION;
  usage->size = sizeof *usage;
}

static void *
page_file (const char *path, size_t size)
{
  int fd = open (path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  MUST_HOLD (fd >= 0 && ftruncate (fd, (off_t) size) == 0);
  void *page = mmap (NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  MUST_HOLD (page != MAP_FAILED);
  close (fd);
  return page;
}

void
host_open_pages (void)
{
  if (unshare (CLONE_NEWNS) || mount (NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)
      || mount ("none", "/usr/local", "tmpfs", 0, NULL) || mkdir (VCUDA_GUEST_DIR, 0755))
    {
      fputs ("fuzz: a mount namespace of its own is needed; run as root\n", stderr);
      exit (1);
    }
  limits = page_file (VCUDA_GUEST_LIMITS, sizeof *limits);
  usage = page_file (VCUDA_GUEST_USAGE, sizeof *usage);
}
