/* Threads take part too: each gets a seat when it is made, and keeps it to its end.  */

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "clock/baton.h"
#include "clock/seats.h"

#define EXPORT __attribute__ ((visibility ("default")))

struct birth
{
  void *(*start) (void *);
  void *argument;
  struct seat *seat;
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_t thread_on[SOFTCLOCK_SEATS]; /* of the seats that are mine */

/* Others clean up after the thread as well, and may look at the clock: this one comes last.  */
static void
end (void *seat)
{
  static __thread unsigned rounds;
  if (++rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
    pthread_setspecific (key, seat);
  else
    softclock_give_up (seat);
}

static void
make_key (void)
{
  if (pthread_key_create (&key, end) != 0)
    softclock_give_in ("no key for threads is left");
}

static void *
begin (void *argument)
{
  struct birth birth = *(struct birth *) argument;
  free (argument);
  pthread_setspecific (key, birth.seat);
  softclock_sit_down (birth.seat);
  return birth.start (birth.argument);
}

EXPORT int
pthread_create (pthread_t *thread, const pthread_attr_t *attributes, void *(*start) (void *),
                void *argument)
{
  static int (*real) (pthread_t *, const pthread_attr_t *, void *(*) (void *), void *);
  if (!real)
    *(void **) &real = dlsym (RTLD_NEXT, "pthread_create");
  if (!softclock_seat)
    return real (thread, attributes, start, argument);
  pthread_once (&once, make_key);
  struct birth *birth = malloc (sizeof *birth);
  struct seat *seat = birth ? softclock_reserve () : NULL;
  if (!seat)
    {
      free (birth);
      return EAGAIN;
    }
  *birth = (struct birth){ .start = start, .argument = argument, .seat = seat };
  int rc = real (thread, attributes, begin, birth);
  if (rc == 0)
    thread_on[softclock_number (seat) - 1] = *thread;
  else
    {
      softclock_give_up (seat);
      free (birth);
    }
  return rc;
}

EXPORT int
pthread_join (pthread_t thread, void **answer)
{
  static int (*real) (pthread_t, void **);
  if (!real)
    *(void **) &real = dlsym (RTLD_NEXT, "pthread_join");
  for (uint32_t number = 1; softclock_seat && number <= SOFTCLOCK_SEATS; number++)
    {
      struct seat *seat = &softclock_shared->seat[number - 1];
      if (seat != softclock_seat && seat->taken && softclock_mine (number)
          && pthread_equal (thread_on[number - 1], thread))
        {
          softclock_wait_for_end (seat);
          break;
        }
    }
  return real (thread, answer);
}
