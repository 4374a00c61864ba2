/* Rings the turn keeper's bell.  */

#include "pages/bell.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pages/pages.h"

void
vcuda_ring (int gpu)
{
  int saved = errno;
  uint32_t *bell = &vcuda_pages.usage->gpu[gpu].bell;
  __atomic_fetch_add (bell, 1, __ATOMIC_SEQ_CST);
  syscall (SYS_futex, bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
  errno = saved;
}
