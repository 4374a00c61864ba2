/* Lets threads and processes take GPU time out of the bucket in their order.  */

#include "gpu_time/line.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#include "gpu_time/time_bucket.h"
#include "pages/pages.h"
#include "pages/slot_file.h"
#include "thread/in_driver.h"

/* A process that waits polls more often than this, unless it has ended or is stopped.  */
#define POLLS_NS 20000000ull
#define BURST_NS (4 * VCUDA_PORTION_NS)
#define LONGEST_BURST_NS 50000000ull
/* For so long a burst keeps others from the GPU, however much the bucket holds: bursts at one time
   change the GPU's process at each kernel. It is longer than a burst, of which gaps are a part.  */
#define ALONE_NS (2 * BURST_NS)
#define LAST_US ((1ull << VCUDA_USAGE_LINE_BITS) - 1)

enum range
{
  WAITS,
  USES,
  COSTS,
  RANGES,
};

/* Of the process, whatever context its threads use.  */
static struct line
{
  pthread_mutex_t mutex;
  uint64_t first_ns, first_seen_ns; /* of the thread that waits longest */
  uint64_t held_us[RANGES];         /* the locked bytes; 0: none */
  uint64_t passed_us; /* places before it are of processes that have stopped polling */
  uint64_t left_ns;   /* GPU time that the process takes yet before others that wait */
  uint64_t kept_ns;   /* since when the bucket had enough, and another process was first; 0: not */
} lines[VCUDA_MAX_GPUS];

static off_t
byte_of (enum range range, int gpu, uint64_t us)
{
  uint64_t number = RANGES * (uint64_t) gpu + (uint64_t) range;
  return (off_t) (VCUDA_USAGE_LINE_LOCK + (number << VCUDA_USAGE_LINE_BITS) + us);
}

static uint64_t
microseconds (uint64_t ns)
{
  uint64_t us = ns / 1000;
  return us < LAST_US ? us : LAST_US;
}

/* Most containers have one process, which needs no system call for its place.  */
static bool
has_processes (void)
{
  return __atomic_load_n (&vcuda_pages.usage->slots_used, __ATOMIC_RELAXED) > 1;
}

/* Shared locks, since two processes may have the same microsecond.  */
static void
hold (enum range range, int gpu, uint64_t us)
{
  uint64_t *held = &lines[gpu].held_us[range];
  if (*held == us)
    return;
  int saved = errno, fd = vcuda_usage_descriptor ();
  if (*held)
    vcuda_lock_byte (fd, byte_of (range, gpu, *held), F_UNLCK);
  *held = us && vcuda_lock_byte (fd, byte_of (range, gpu, us), F_RDLCK) ? us : 0;
  errno = saved;
}

/* A microsecond that another process holds; LAST_US: none.  */
static uint64_t
held_by_others (enum range range, int gpu, uint64_t since_us, uint64_t before_us)
{
  if (since_us >= before_us)
    return LAST_US;
  int saved = errno;
  off_t first = byte_of (range, gpu, since_us);
  off_t found
      = vcuda_locked_byte (vcuda_usage_descriptor (), first, (off_t) (before_us - since_us));
  errno = saved;
  return found < first ? LAST_US : since_us + (uint64_t) (found - first);
}

static bool
others_hold (enum range range, int gpu, uint64_t since_us, uint64_t before_us)
{
  return held_by_others (range, gpu, since_us, before_us) != LAST_US;
}

/* As much as the longest launch that waits: processes of short kernels would otherwise have less
   than one of long kernels.  */
static uint64_t
burst (int gpu)
{
  uint64_t us = BURST_NS / 1000;
  for (uint64_t more = us; more != LAST_US;
       more = held_by_others (COSTS, gpu, us + 1, LONGEST_BURST_NS / 1000 + 1))
    us = more;
  return us * 1000;
}

bool
vcuda_line_is_first (int gpu, uint64_t began, uint64_t now)
{
  struct line *line = &lines[gpu];
  vcuda_lock (&line->mutex);
  bool first = !line->first_ns || (began && began <= line->first_ns)
               || now - line->first_seen_ns > POLLS_NS;
  vcuda_unlock (&line->mutex);
  return first;
}

uint64_t
vcuda_line_enough (int gpu, uint64_t now)
{
  bool shares = has_processes ()
                && (others_hold (WAITS, gpu, 0, LAST_US)
                    || others_hold (USES, gpu, microseconds (now - POLLS_NS), LAST_US));
  return shares ? BURST_NS : VCUDA_PORTION_NS;
}

/* A burst that has begun goes on into a debt of a portion or so: one that the bucket cut short
   would be less than the others'.  */
static bool
takes_of_burst (struct line *line, uint64_t cost)
{
  cost = cost > VCUDA_PORTION_NS ? cost : VCUDA_PORTION_NS;
  bool enough = line->left_ns >= cost;
  line->left_ns = enough ? line->left_ns - cost : 0;
  return enough;
}

static bool
passes (struct line *line, int gpu, bool has_enough, uint64_t began, uint64_t now, uint64_t cost)
{
  if (has_processes () && !began && takes_of_burst (line, cost))
    return true;
  if (!has_enough || !has_processes ())
    {
      line->kept_ns = 0;
      return has_enough;
    }
  uint64_t own = microseconds (began ? began : now);
  if (others_hold (WAITS, gpu, line->passed_us, own))
    {
      if (!line->kept_ns)
        line->kept_ns = now;
      if (now - line->kept_ns <= POLLS_NS)
        return false;
      line->passed_us = own;
    }
  line->kept_ns = 0;
  if (others_hold (USES, gpu, microseconds (now - ALONE_NS), LAST_US))
    return false;
  hold (USES, gpu, microseconds (now));
  line->left_ns = burst (gpu);
  takes_of_burst (line, cost);
  return true;
}

bool
vcuda_line_passes (int gpu, bool has_enough, uint64_t began, uint64_t now, uint64_t cost)
{
  vcuda_lock (&lines[gpu].mutex);
  bool passed = passes (&lines[gpu], gpu, has_enough, began, now, cost);
  vcuda_unlock (&lines[gpu].mutex);
  return passed;
}

void
vcuda_line_join (int gpu, uint64_t began, uint64_t now, uint64_t cost)
{
  struct line *line = &lines[gpu];
  vcuda_lock (&line->mutex);
  line->first_ns = began;
  line->first_seen_ns = now;
  if (has_processes ())
    {
      hold (USES, gpu, 0);
      hold (WAITS, gpu, microseconds (began));
      cost = cost < LONGEST_BURST_NS ? cost : LONGEST_BURST_NS;
      hold (COSTS, gpu, cost > BURST_NS ? microseconds (cost) : 0);
    }
  vcuda_unlock (&line->mutex);
}

void
vcuda_line_leave (int gpu, uint64_t began)
{
  struct line *line = &lines[gpu];
  vcuda_lock (&line->mutex);
  if (line->first_ns == began)
    {
      line->first_ns = line->kept_ns = 0;
      hold (WAITS, gpu, 0);
      hold (COSTS, gpu, 0);
    }
  vcuda_unlock (&line->mutex);
}

void
vcuda_line_forget (void)
{
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    lines[gpu] = (struct line){ .mutex = PTHREAD_MUTEX_INITIALIZER };
}
