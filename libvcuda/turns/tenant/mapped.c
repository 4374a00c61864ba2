/* The kernel answers a read beyond the end of a mapped file with SIGBUS, in the thread that reads:
   its handler ends that read. Source: mmap(2), signal(7).  */

#include "tenant/mapped.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>

static _Thread_local sigjmp_buf *reading;

static void
end_read (int number)
{
  if (reading)
    siglongjmp (*reading, 1);
  /* Another program has sent it, or the fault is ours: the usual end.  */
  signal (number, SIG_DFL);
  raise (number);
}

void
mapped_begin (void)
{
  /* The handler does not return, so the signal is not blocked meanwhile.  */
  struct sigaction action = { .sa_handler = end_read, .sa_flags = SA_NODEFER };
  sigaction (SIGBUS, &action, NULL);
}

bool
mapped_read (void *to, const void *from, size_t size)
{
  sigjmp_buf missing;
  if (sigsetjmp (missing, 0))
    {
      reading = NULL;
      return false;
    }
  reading = &missing;
  __atomic_signal_fence (__ATOMIC_SEQ_CST);
  memcpy (to, from, size);
  __atomic_thread_fence (__ATOMIC_ACQUIRE);
  __atomic_signal_fence (__ATOMIC_SEQ_CST);
  reading = NULL;
  return true;
}
