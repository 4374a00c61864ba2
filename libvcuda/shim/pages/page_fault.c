/* Who may write a file may cut it short, and a look at a page beyond its end is SIGBUS. What was
   cut off is made long again, and reads as zeros, as any scribble: each process takes a slot again
   and enters what it holds at its next call.

   Everything here is called in a signal handler, and nothing in it touches the page.  */

#include "pages/page_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "thread/message.h"

/* After so many repairs of a page that another process cuts, map a private page instead.  */
#define MOST_MENDED 1000

static struct vcuda_usage *page;
static unsigned mended;

static bool
lengthen (int fd)
{
  static const struct
  {
    uint32_t magic, version, size;
  } head = { VCUDA_USAGE_MAGIC, VCUDA_ABI_VERSION, sizeof *page };
  uint32_t magic;
  /* Unlike ftruncate it never shortens, and takes the memory now: no fault for want of it later. */
  return fallocate (fd, 0, 0, sizeof *page) == 0 && pread (fd, &magic, sizeof magic, 0) > 0
         && (magic || pwrite (fd, &head, sizeof head, 0) == sizeof head);
}

static void
mend (void)
{
  unsigned before = __atomic_fetch_add (&mended, 1, __ATOMIC_RELAXED);
  int fd = before < MOST_MENDED ? open (VCUDA_GUEST_USAGE, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
  if (fd < 0 || !lengthen (fd))
    mmap (page, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1,
          0);
  if (fd >= 0)
    close (fd);
  if (!before)
    vcuda_say (VCUDA_LINE (VCUDA_GUEST_USAGE, "was cut short and is counted anew",
                           "leave the file alone"));
}

static void
on_fault (int number, siginfo_t *info, void *context)
{
  (void) context;
  int saved = errno;
  if (info->si_code == BUS_ADRERR && (uintptr_t) info->si_addr - (uintptr_t) page < sizeof *page)
    mend ();
  else
    {
      /* As if we were not here: a fault comes again by itself, what was sent does not.  */
      signal (number, SIG_DFL);
      if (info->si_code <= 0)
        raise (number);
    }
  errno = saved;
}

void
vcuda_watch_page (struct vcuda_usage *usage)
{
  struct sigaction theirs;
  struct sigaction ours
      = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART };
  page = usage;
  if (sigaction (SIGBUS, NULL, &theirs) == 0 && !(theirs.sa_flags & SA_SIGINFO)
      && theirs.sa_handler == SIG_DFL)
    sigaction (SIGBUS, &ours, NULL);
}
