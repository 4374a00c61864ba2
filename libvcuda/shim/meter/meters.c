/* The list of meters. Few contexts live at a time, so a short list is enough. A new context reuses
   the meter of an ended one, so a program may create and destroy any number.  */

#include "meter/meters.h"

#include <stdlib.h>
#include <string.h>

#include "gpu_time/credit.h"
#include "gpu_time/estimate.h"
#include "gpu_time/line.h"
#include "thread/in_driver.h"

#define METERS 64

static pthread_mutex_t meters_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct meter *meters[METERS];
static unsigned meter_count;

static struct meter *
make_meter (void)
{
  struct meter *meter = calloc (1, sizeof *meter);
  if (meter)
    pthread_mutex_init (&meter->mutex, NULL);
  return meter;
}

struct meter *
vcuda_meter_of (CUcontext context, int gpu, bool make)
{
  struct meter *found = NULL;
  unsigned room = METERS;
  vcuda_lock (&meters_mutex);
  for (unsigned i = 0; i < METERS && !found; i++)
    if (!meters[i] || !meters[i]->context)
      room = room < i ? room : i;
    else if (meters[i]->context == context)
      found = meters[i];
  if (!found && make && room < METERS && (meters[room] || (meters[room] = make_meter ())))
    {
      found = meters[room];
      found->context = context;
      found->gpu = gpu;
      __atomic_fetch_add (&meter_count, 1, __ATOMIC_RELAXED);
    }
  vcuda_unlock (&meters_mutex);
  return found;
}

bool
vcuda_meters_exist (void)
{
  return __atomic_load_n (&meter_count, __ATOMIC_RELAXED) != 0;
}

static bool
is_idle (struct meter *meter, int gpu)
{
  vcuda_lock (&meter->mutex);
  bool idle = !meter->context || meter->gpu != gpu || !meter->count;
  vcuda_unlock (&meter->mutex);
  return idle;
}

bool
vcuda_meters_idle (int gpu)
{
  bool idle = true;
  vcuda_lock (&meters_mutex);
  for (unsigned i = 0; i < METERS && idle; i++)
    idle = !meters[i] || is_idle (meters[i], gpu);
  vcuda_unlock (&meters_mutex);
  return idle;
}

void
vcuda_meters_break (int gpu)
{
  vcuda_lock (&meters_mutex);
  for (unsigned i = 0; i < METERS; i++)
    if (meters[i] && meters[i]->gpu == gpu)
      __atomic_store_n (&meters[i]->unbroken, false, __ATOMIC_RELAXED);
  vcuda_unlock (&meters_mutex);
}

/* The events ended with their context. A thread may still hold a pointer to the meter or to an
   entry of it, which is then not OPEN any more.  */
static void
empty (struct meter *meter)
{
  vcuda_lock (&meter->mutex);
  memset (meter->ring, 0, sizeof meter->ring);
  meter->head = meter->count = 0;
  meter->in_flight_ns = 0;
  meter->fence = NULL;
  meter->anchor = NULL;
  meter->anchor_ms = 0;
  meter->covered = (struct vcuda_intervals){ 0 };
  meter->context = NULL;
  vcuda_unlock (&meter->mutex);
}

void
vcuda_meter_drop (CUcontext context)
{
  vcuda_lock (&meters_mutex);
  for (unsigned i = 0; i < METERS; i++)
    if (meters[i] && meters[i]->context && meters[i]->context == context)
      {
        empty (meters[i]);
        __atomic_fetch_sub (&meter_count, 1, __ATOMIC_RELAXED);
      }
  vcuda_unlock (&meters_mutex);
}

void
vcuda_meters_forget (void)
{
  pthread_mutex_init (&meters_mutex, NULL);
  memset (meters, 0, sizeof meters);
  meter_count = 0;
  vcuda_estimates_forget ();
  vcuda_credit_forget ();
  vcuda_line_forget ();
}
