/* A SIGBUS handler that repairs the usage page.

   A process that may write a file may also truncate it; an access beyond the file's end then raises
   SIGBUS. The handler extends the file again. The new part is zeros: at its next call each process
   finds its slot lost, takes another and enters what it holds.

   Everything here runs in a signal handler, and nothing in it touches the page.  */

#include "pages/page_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "thread/message.h"

/* Another process may truncate the file again and again: then map a private page.  */
#define MOST_REPAIRS 1000

static struct vcuda_usage *page;
static unsigned repairs;

static bool
lengthen (int fd)
{
  static const struct
  {
    uint32_t magic, version, size;
  } head = { VCUDA_USAGE_MAGIC, VCUDA_ABI_VERSION, sizeof *page };
  uint32_t magic;
  /* Unlike ftruncate, fallocate never shortens, and it takes the memory now, so that no later write
     fails for want of it.  */
  return fallocate (fd, 0, 0, sizeof *page) == 0 && pread (fd, &magic, sizeof magic, 0) > 0
         && (magic || pwrite (fd, &head, sizeof head, 0) == sizeof head);
}

static void
repair (void)
{
  unsigned before = __atomic_fetch_add (&repairs, 1, __ATOMIC_RELAXED);
  int fd = before < MOST_REPAIRS ? open (VCUDA_GUEST_USAGE, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
  if (fd < 0 || !lengthen (fd))
    mmap (page, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1,
          0);
  if (fd >= 0)
    close (fd);
  if (!before)
    vcuda_report (VCUDA_LINE (VCUDA_GUEST_USAGE, "was cut short and is counted anew",
                              "leave the file alone"));
}

static void
on_fault (int number, siginfo_t *info, void *context)
{
  (void) context;
  int saved = errno;
  if (info->si_code == BUS_ADRERR && (uintptr_t) info->si_addr - (uintptr_t) page < sizeof *page)
    repair ();
  else
    {
      /* Not the shim's fault: restore the default action. A fault comes again by itself, a signal
         that was sent does not.  */
      signal (number, SIG_DFL);
      if (info->si_code <= 0)
        raise (number);
    }
  errno = saved;
}

void
vcuda_watch_page (struct vcuda_usage *usage)
{
  struct sigaction found;
  struct sigaction handler
      = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART };
  page = usage;
  if (sigaction (SIGBUS, NULL, &found) == 0 && !(found.sa_flags & SA_SIGINFO)
      && found.sa_handler == SIG_DFL)
    sigaction (SIGBUS, &handler, NULL);
}
