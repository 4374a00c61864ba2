/* A process's view of the GPUs' time.  */

#include "engine/device_time.h"

#include <errno.h>
#include <time.h>

/* While others have commands a waiter looks again this often: one of them may have died.  */
#define LOOK_AGAIN_NS 10000000ull

uint64_t
softgpu_now (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC, &now);
  return (uint64_t) now.tv_sec * 1000000000ull + (uint64_t) now.tv_nsec;
}

void
softgpu_sleep_until (uint64_t end)
{
  const struct timespec moment
      = { .tv_sec = (time_t) (end / 1000000000ull), .tv_nsec = (long) (end % 1000000000ull) };
  while (clock_nanosleep (CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) == EINTR)
    continue;
}

static bool
alone (const struct attachment *tie, unsigned gpu)
{
  FOR_BACKLOGGED (slot, tie->state, gpu)
    if (slot != tie->slot)
      return false;
  return true;
}

/* The first reading of the clock and the one at the submission itself count too.  */
void
softgpu_take_submit_time (const struct attachment *tie)
{
  uint64_t submit_ns = tie->state->submit_ns;
  if (!submit_ns)
    return;
  uint64_t first = softgpu_now (), now = softgpu_now (), readings = 2 * (now - first);
  while (now - first + readings < submit_ns)
    now = softgpu_now ();
}

/* A kernel that may fill less of the GPU takes longer, in proportion.  */
static void
narrow (struct softgpu_command *command, uint64_t most)
{
  if (command->width <= most)
    return;
  bool pieces = command->piece_ns && command->left_ns % command->piece_ns == 0;
  uint64_t count = pieces ? command->left_ns / command->piece_ns : 0;
  command->piece_ns = command->piece_ns * command->width / most;
  command->left_ns = pieces ? command->piece_ns * count : command->left_ns * command->width / most;
  command->width = (uint32_t) most;
}

uint64_t
softgpu_submit (struct attachment *tie, unsigned gpu, struct softgpu_command command)
{
  const struct softgpu_slot_gpu *queue = softgpu_queue (tie->state, gpu, tie->slot);
  if (queue->head - queue->tail >= SOFTGPU_COMMANDS)
    return 0;
  if (tie->state->clock == SOFTGPU_KIND)
    {
      command.lane = SOFTGPU_LEGACY_LANE;
      command.width = SOFTGPU_WHOLE;
    }
  if (command.kind == SOFTGPU_KERNEL)
    narrow (&command, softgpu_most_width (softgpu_own_slot (tie)));
  return softgpu_append (tie->state, gpu, tie->slot, &command) + 1;
}

bool
softgpu_reached_now (struct attachment *tie, unsigned gpu, struct softgpu_target target)
{
  softgpu_advance (tie->state, gpu, softgpu_now ());
  return softgpu_reached (tie->state, gpu, tie->slot, target);
}

void
softgpu_wait (struct attachment *tie, unsigned gpu, struct softgpu_target target)
{
  for (;;)
    {
      softgpu_lock (tie);
      uint64_t now = softgpu_now ();
      softgpu_advance (tie->state, gpu, now);
      if (softgpu_reached (tie->state, gpu, tie->slot, target) || softgpu_own_slot (tie)->fault)
        break;
      if (now - tie->state->reaped_ns > LOOK_AGAIN_NS)
        {
          tie->state->reaped_ns = now;
          softgpu_reap (tie);
          softgpu_advance (tie->state, gpu, now);
        }
      uint64_t then = softgpu_earliest_end (tie->state, gpu, tie->slot, target);
      if (then > now + LOOK_AGAIN_NS && !(then < UINT64_MAX && alone (tie, gpu)))
        then = now + LOOK_AGAIN_NS;
      softgpu_unlock (tie);
      softgpu_sleep_until (then);
    }
  softgpu_unlock (tie);
}
