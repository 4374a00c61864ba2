/* Which meter belongs to which context. Contexts are few, so a short list serves.  */

#include "meters.h"

#include <stdlib.h>

#include "credit.h"

#define METERS 64

static pthread_mutex_t meters_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct meter *meters[METERS];
static unsigned meter_count;

struct meter *
vcuda_meter_of (CUcontext context, int gpu, bool make)
{
  struct meter *found = NULL;
  unsigned room = METERS;
  pthread_mutex_lock (&meters_mutex);
  for (unsigned i = 0; i < METERS && !found; i++)
    if (meters[i] && meters[i]->context == context)
      found = meters[i];
    else if (!meters[i] && room == METERS)
      room = i;
  if (!found && make && room < METERS && (found = calloc (1, sizeof *found)))
    {
      found->context = context;
      found->gpu = gpu;
      pthread_mutex_init (&found->mutex, NULL);
      meters[room] = found;
      __atomic_fetch_add (&meter_count, 1, __ATOMIC_RELAXED);
    }
  pthread_mutex_unlock (&meters_mutex);
  return found;
}

bool
vcuda_meters_exist (void)
{
  return __atomic_load_n (&meter_count, __ATOMIC_RELAXED) != 0;
}

void
vcuda_meter_drop (CUcontext context)
{
  pthread_mutex_lock (&meters_mutex);
  for (unsigned i = 0; i < METERS; i++)
    if (meters[i] && meters[i]->context == context)
      {
        /* The events died with their context. A thread may still hold a pointer to the meter, so
           it is forgotten, not freed: contexts are few.  */
        meters[i] = NULL;
        __atomic_fetch_sub (&meter_count, 1, __ATOMIC_RELAXED);
      }
  pthread_mutex_unlock (&meters_mutex);
}

void
vcuda_meters_forget (void)
{
  pthread_mutex_init (&meters_mutex, NULL);
  for (unsigned i = 0; i < METERS; i++)
    meters[i] = NULL;
  meter_count = 0;
  vcuda_estimates_forget ();
  vcuda_credit_forget ();
}

bool
vcuda_enter_context (CUcontext context)
{
  return context != vcuda_current.context && real.cuCtxPushCurrent_v2 (context) == CUDA_SUCCESS;
}

void
vcuda_leave_context (bool entered)
{
  CUcontext ignored;
  if (entered)
    real.cuCtxPopCurrent_v2 (&ignored);
}
