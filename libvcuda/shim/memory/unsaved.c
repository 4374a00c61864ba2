/* Keeps the bits of this process's slot in `unsaved` of the usage page.  */

#include "memory/unsaved.h"

#include <pthread.h>

#include "charge/alloc_map.h"
#include "thread/in_driver.h"

/* So that of two threads the later one reads the count last.  */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool shares_memory;

void
vcuda_unsaved_enter (const struct vcuda_usage_slot *slot)
{
  unsigned at = (unsigned) (slot - vcuda_pages.usage->slot);
  vcuda_slot_set_unsaved (at, VCUDA_UNSAVED_MANAGED, vcuda_map_managed () != 0);
  vcuda_slot_set_unsaved (at, VCUDA_UNSAVED_IPC,
                          __atomic_load_n (&shares_memory, __ATOMIC_RELAXED));
}

void
vcuda_note_managed (void)
{
  const struct vcuda_usage_slot *slot = vcuda_slot ();
  vcuda_lock (&mutex);
  if (slot)
    vcuda_unsaved_enter (slot);
  vcuda_unlock (&mutex);
}

void
vcuda_note_ipc (void)
{
  __atomic_store_n (&shares_memory, true, __ATOMIC_RELAXED);
  vcuda_note_managed ();
}

void
vcuda_unsaved_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
  shares_memory = false;
}
