/* Threads participate too: each gets a slot when it is created, and keeps it to its end.  */

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "clock/owner.h"
#include "clock/raw_call.h"
#include "clock/slots.h"

struct new_thread
{
  void *(*start) (void *);
  void *argument;
  struct thread_slot *slot;
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_t thread_on[SOFTCLOCK_SLOTS]; /* by slot; only this process's are set */

/* Releases the slot in the last round of destructors: those of other keys may read the clock.  */
static void
end (void *slot)
{
  static __thread unsigned rounds;
  if (++rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
    pthread_setspecific (key, slot);
  else
    softclock_release_slot (slot);
}

static void
make_key (void)
{
  if (pthread_key_create (&key, end) != 0)
    softclock_fail ("no key for threads is left");
}

static void *
begin (void *argument)
{
  struct new_thread made = *(struct new_thread *) argument;
  free (argument);
  pthread_setspecific (key, made.slot);
  softclock_take_slot (made.slot);
  return made.start (made.argument);
}

EXPORT int
pthread_create (pthread_t *thread, const pthread_attr_t *attributes, void *(*start) (void *),
                void *argument)
{
  static int (*real) (pthread_t *, const pthread_attr_t *, void *(*) (void *), void *);
  if (!real)
    *(void **) &real = dlsym (RTLD_NEXT, "pthread_create");
  if (!softclock_slot)
    return real (thread, attributes, start, argument);
  pthread_once (&once, make_key);
  struct new_thread *made = malloc (sizeof *made);
  struct thread_slot *slot = made ? softclock_reserve () : NULL;
  if (!slot)
    {
      free (made);
      return EAGAIN;
    }
  *made = (struct new_thread){ .start = start, .argument = argument, .slot = slot };
  int rc = real (thread, attributes, begin, made);
  if (rc == 0)
    thread_on[softclock_number (slot) - 1] = *thread;
  else
    {
      softclock_release_slot (slot);
      free (made);
    }
  return rc;
}

EXPORT int
pthread_join (pthread_t thread, void **answer)
{
  static int (*real) (pthread_t, void **);
  if (!real)
    *(void **) &real = dlsym (RTLD_NEXT, "pthread_join");
  for (uint32_t number = 1; softclock_slot && number <= SOFTCLOCK_SLOTS; number++)
    {
      struct thread_slot *slot = &softclock_shared->slot[number - 1];
      if (slot != softclock_slot && slot->taken && softclock_mine (number)
          && pthread_equal (thread_on[number - 1], thread))
        {
          softclock_wait_for_end (slot);
          break;
        }
    }
  return real (thread, answer);
}
