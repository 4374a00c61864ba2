/* Waits until the host has resumed this container.  */

#include "pages/suspended.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A waiting call asks again so often: the container may have been resumed and suspended again, and
   the host counts only what is asked after that.  */
#define ASK_AGAIN_NS 100000000l

void
vcuda_wait_until_awake (void)
{
  const uint32_t *word = &vcuda_pages.limits->suspended;
  struct timespec span = { .tv_nsec = ASK_AGAIN_NS };
  int saved = errno;
  uint32_t state;
  while ((state = __atomic_load_n (word, __ATOMIC_SEQ_CST)) != VCUDA_AWAKE)
    {
      if (state == VCUDA_UNTIL_CALL)
        __atomic_fetch_add (&vcuda_pages.usage->resume_asked, 1, __ATOMIC_SEQ_CST);
      syscall (SYS_futex, word, FUTEX_WAIT, state, &span, NULL, 0);
    }
  errno = saved;
}
