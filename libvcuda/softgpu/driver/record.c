/* Records behind handles. A retired record is never returned to the heap: a handle that is used
   after its destruction then points to a record of kind 0, not to other data.  */

#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"

enum
{
  SIZES = 64, /* in steps of 16 bytes */
};

struct retired
{
  uint32_t kind; /* 0 */
  struct retired *next;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct retired *oldest[SIZES], *newest[SIZES];

void *
softgpu_new_record (size_t bytes)
{
  size_t size = (bytes + 15) / 16;
  void *record = NULL;
  if (size < SIZES)
    {
      pthread_mutex_lock (&guard);
      record = oldest[size];
      if (record)
        oldest[size] = oldest[size]->next;
      pthread_mutex_unlock (&guard);
    }
  if (!record)
    return calloc (1, size * 16);
  memset (record, 0, bytes);
  return record;
}

/* The one retired longest ago is used first, so that a stale handle stays stale for long.  */
void
softgpu_retire (void *record, size_t bytes)
{
  size_t size = (bytes + 15) / 16;
  struct retired *last = record;
  last->kind = 0;
  if (size >= SIZES)
    return;
  last->next = NULL;
  pthread_mutex_lock (&guard);
  if (oldest[size])
    newest[size]->next = last;
  else
    oldest[size] = last;
  newest[size] = last;
  pthread_mutex_unlock (&guard);
}
