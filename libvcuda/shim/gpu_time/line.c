/* Lets threads and processes take GPU time out of the bucket in their order.  */

#include "gpu_time/line.h"

#include <fcntl.h>

#include "gpu_time/time_bucket.h"
#include "pages/pages.h"
#include "pages/slot_file.h"

/* One that waits looks more often than this, unless it has been ended or stopped.  */
#define LOOKS_NS 20000000ull
#define BURST_NS (4 * VCUDA_PORTION_NS)
#define LAST_US ((1ull << VCUDA_USAGE_LINE_BITS) - 1)

enum range
{
  WAITS,
  USES,
};

static off_t
byte_of (enum range range, int gpu, uint64_t us)
{
  uint64_t number = 2 * (uint64_t) gpu + (uint64_t) range;
  return (off_t) (VCUDA_USAGE_LINE_LOCK + (number << VCUDA_USAGE_LINE_BITS) + us);
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

/* Shared locks, since two processes may have the same microsecond. *HELD is the one held.  */
static void
hold (enum range range, int gpu, uint64_t *held, uint64_t us)
{
  if (*held == us)
    return;
  int fd = vcuda_usage_descriptor ();
  if (*held)
    vcuda_lock_byte (fd, byte_of (range, gpu, *held), F_UNLCK);
  *held = us && vcuda_lock_byte (fd, byte_of (range, gpu, us), F_RDLCK) ? us : 0;
}

static bool
others_hold (enum range range, int gpu, uint64_t since_us, uint64_t before_us)
{
  return since_us < before_us
         && vcuda_bytes_are_locked (vcuda_usage_descriptor (), byte_of (range, gpu, since_us),
                                    (off_t) (before_us - since_us));
}

bool
vcuda_line_is_first (const struct vcuda_line *line, uint64_t began, uint64_t now)
{
  return !line->first_ns || (began && began <= line->first_ns)
         || now - line->first_seen_ns > LOOKS_NS;
}

uint64_t
vcuda_line_enough (int gpu, uint64_t now)
{
  bool shares = has_processes ()
                && (others_hold (WAITS, gpu, 0, LAST_US)
                    || others_hold (USES, gpu, microsecond (now - LOOKS_NS), LAST_US));
  return shares ? BURST_NS : VCUDA_PORTION_NS;
}

/* A burst that has begun goes on into a debt of a portion or so: one that the bucket cut short
   would be less than the others'.  */
static bool
takes_of_burst (struct vcuda_line *line, uint64_t cost)
{
  cost = cost > VCUDA_PORTION_NS ? cost : VCUDA_PORTION_NS;
  bool enough = line->left_ns >= cost;
  line->left_ns = enough ? line->left_ns - cost : 0;
  return enough;
}

bool
vcuda_line_passes (struct vcuda_line *line, int gpu, bool has_enough, uint64_t began, uint64_t now,
                   uint64_t cost)
{
  if (has_processes () && !began && takes_of_burst (line, cost))
    return true;
  if (!has_enough || !has_processes ())
    {
      line->kept_ns = 0;
      return has_enough;
    }
  uint64_t own = microsecond (began ? began : now);
  if (others_hold (WAITS, gpu, line->passed_us, own))
    {
      if (!line->kept_ns)
        line->kept_ns = now;
      if (now - line->kept_ns <= LOOKS_NS)
        return false;
      line->passed_us = own;
    }
  line->kept_ns = 0;
  hold (USES, gpu, &line->uses_us, microsecond (now));
  line->left_ns = BURST_NS;
  takes_of_burst (line, cost);
  return true;
}

void
vcuda_line_join (struct vcuda_line *line, int gpu, uint64_t began, uint64_t now)
{
  line->first_ns = began;
  line->first_seen_ns = now;
  if (has_processes ())
    hold (WAITS, gpu, &line->waits_us, microsecond (began));
}

void
vcuda_line_leave (struct vcuda_line *line, int gpu, uint64_t began)
{
  if (line->first_ns != began)
    return;
  line->first_ns = line->kept_ns = 0;
  hold (WAITS, gpu, &line->waits_us, 0);
}
