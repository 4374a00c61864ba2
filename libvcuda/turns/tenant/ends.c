/* Watches usage pages through inotify, and counts the ends of processes.  */

#include "tenant/ends.h"

#include <stdio.h>
#include <sys/inotify.h>

#include "tenant/bells.h"
#include "tenant/queue.h"

/* Each end adds END_NS, and a process makes two: fifty processes a second, after a burst of fifty.
 */
#define END_NS (10 * MS)
#define MOST_DEBT_NS (1000 * MS)

void
ends_watch (int inotify, const char *state_dir, struct container *container)
{
  char path[4096];
  snprintf (path, sizeof path, "%s/containers/%s/usage", state_dir, container->id);
  container->watch = inotify_add_watch (inotify, path, IN_CLOSE_WRITE | IN_DONT_FOLLOW);
}

void
ends_note (int inotify, struct container *container)
{
  uint64_t now = bells_now (), paid = now - container->noted_ns;
  container->noted_ns = now;
  container->ends_debt_ns = container->ends_debt_ns > paid ? container->ends_debt_ns - paid : 0;
  container->ends_debt_ns += END_NS;
  if (container->ends_debt_ns > MOST_DEBT_NS)
    {
      inotify_rm_watch (inotify, container->watch);
      __atomic_store_n (&container->watch, -1, __ATOMIC_RELAXED);
    }
  __atomic_fetch_add (&container->ends, 1, __ATOMIC_RELAXED);
}

bool
ends_read (const struct container *container, uint32_t *count)
{
  *count = __atomic_load_n (&container->ends, __ATOMIC_RELAXED);
  return __atomic_load_n (&container->watch, __ATOMIC_RELAXED) >= 0;
}
