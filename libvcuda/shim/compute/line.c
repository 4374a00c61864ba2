/* Lets threads and processes take GPU time out of the bucket in their order.  */

#include "compute/line.h"

#include <fcntl.h>

#include "pages/pages.h"
#include "pages/slot_file.h"

/* One that waits looks more often than this, unless it has been ended or stopped.  */
#define LOOKS_NS 20000000ull
#define LAST_US ((1ull << VCUDA_USAGE_LINE_BITS) - 1)

static off_t
byte_of (int gpu, uint64_t us)
{
  return (off_t) (VCUDA_USAGE_LINE_LOCK + ((uint64_t) gpu << VCUDA_USAGE_LINE_BITS) + us);
}

static uint64_t
microsecond (uint64_t moment)
{
  uint64_t us = moment / 1000;
  return us < LAST_US ? us : LAST_US;
}

/* Most containers have one process, which needs no system call for its place.  */
static bool
has_processes (void)
{
  return __atomic_load_n (&vcuda_pages.usage->slots_used, __ATOMIC_RELAXED) > 1;
}

static void
give_up_place (struct vcuda_line *line, int gpu)
{
  if (line->place_us)
    vcuda_lock_byte (vcuda_usage_descriptor (), byte_of (gpu, line->place_us), F_UNLCK);
  line->place_us = 0;
}

bool
vcuda_line_is_first (const struct vcuda_line *line, uint64_t began, uint64_t now)
{
  return !line->first_ns || (began && began <= line->first_ns)
         || now - line->first_seen_ns > LOOKS_NS;
}

bool
vcuda_line_passes (struct vcuda_line *line, int gpu, bool has_enough, uint64_t began, uint64_t now)
{
  uint64_t own = microsecond (began ? began : now);
  if (!has_enough)
    {
      line->kept_ns = 0;
      return false;
    }
  if (!has_processes () || own <= line->passed_us
      || !vcuda_bytes_are_locked (vcuda_usage_descriptor (), byte_of (gpu, line->passed_us),
                                  (off_t) (own - line->passed_us)))
    {
      line->kept_ns = 0;
      return true;
    }
  if (!line->kept_ns)
    line->kept_ns = now;
  if (now - line->kept_ns <= LOOKS_NS)
    return false;
  line->kept_ns = 0;
  line->passed_us = own;
  return true;
}

void
vcuda_line_join (struct vcuda_line *line, int gpu, uint64_t began, uint64_t now)
{
  line->first_ns = began;
  line->first_seen_ns = now;
  uint64_t us = microsecond (began);
  if (us == line->place_us || !has_processes ())
    return;
  give_up_place (line, gpu);
  /* Shared, since two processes may have the same microsecond.  */
  if (vcuda_lock_byte (vcuda_usage_descriptor (), byte_of (gpu, us), F_RDLCK))
    line->place_us = us;
}

void
vcuda_line_leave (struct vcuda_line *line, int gpu, uint64_t began)
{
  if (line->first_ns != began)
    return;
  line->first_ns = line->kept_ns = 0;
  give_up_place (line, gpu);
}
