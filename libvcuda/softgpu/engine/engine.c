/* The GPU's time.  */

#include "engine/engine.h"

#include "engine/copy_engine.h"
#include "engine/finish.h"
#include "engine/turn.h"
#include "state/busy.h"

/* The next kernel of SLOT to begin, and the width of those that run.  */
static struct softgpu_command *
next_of_slot (struct softgpu_state *state, unsigned gpu, unsigned slot, uint64_t *width)
{
  struct softgpu_command *first = NULL;
  *width = 0;
  FOR_LANES (lane, head, state, gpu, slot)
    {
      if (head->kind != SOFTGPU_KERNEL)
        continue;
      if (head->state == SOFTGPU_RUNNING)
        *width += head->width;
      else if (head->state == SOFTGPU_QUEUED && (!first || head->order < first->order)
               && softgpu_unblocked (softgpu_queue (state, gpu, slot), lane))
        first = head;
    }
  return first;
}

/* The width of the kernels that run in the partition of SLOT, of all its clients.  */
static uint64_t
width_of_partition (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  const struct softgpu_slot *own = &state->slot[slot];
  uint64_t sum = 0;
  FOR_BACKLOGGED (other, state, gpu)
    {
      const struct softgpu_slot *process = &state->slot[other];
      uint64_t width = 0;
      if (process->mps_server == own->mps_server && process->mps_generation == own->mps_generation
          && process->mps_partition == own->mps_partition)
        next_of_slot (state, gpu, (unsigned) other, &width);
      sum += width;
    }
  return sum;
}

/* The next kernel to begin on the processes that have the GPU, and the width of those that run. One
   that its process's own limit holds back lets others begin.  */
static struct softgpu_command *
first_to_begin (struct softgpu_state *state, unsigned gpu, uint64_t *width)
{
  struct softgpu_command *first = NULL;
  *width = 0;
  FOR_BACKLOGGED (slot, state, gpu)
    {
      if (!softgpu_has_gpu (state, gpu, slot))
        continue;
      uint64_t own;
      struct softgpu_command *next = next_of_slot (state, gpu, (unsigned) slot, &own);
      *width += own;
      if (next && state->slot[slot].mps_partition)
        own = width_of_partition (state, gpu, (unsigned) slot);
      if (next && own + next->width <= softgpu_most_width (&state->slot[slot])
          && (!first || next->order < first->order))
        first = next;
    }
  return first;
}

static bool
begin_kernels (struct softgpu_state *state, unsigned gpu)
{
  bool any = false;
  while (!softgpu_draining (state, gpu))
    {
      uint64_t width;
      struct softgpu_command *first = first_to_begin (state, gpu, &width);
      if (!first || width + first->width > SOFTGPU_WHOLE)
        break;
      first->state = SOFTGPU_RUNNING;
      any = true;
    }
  return any;
}

static bool
finish_all (struct softgpu_state *state, unsigned gpu)
{
  bool any = false;
  FOR_BACKLOGGED (slot, state, gpu)
    any |= softgpu_finish (state, gpu, slot);
  return any;
}

/* Lets everything happen that takes no time. All that can end does so before the turn passes on: a
   record of the only process with work needs no turn.  */
static void
settle (struct softgpu_state *state, unsigned gpu)
{
  do
    while (finish_all (state, gpu))
      continue;
  while (softgpu_take_turn (state, gpu) || softgpu_start_copies (state, gpu)
         || begin_kernels (state, gpu));
}

/* Whether a process waits for the current one's slice to end.  */
static bool
contended (struct softgpu_state *state, unsigned gpu)
{
  return state->clock != SOFTGPU_MPS && softgpu_next_waiting (state, gpu) != SOFTGPU_MAX_SLOTS;
}

static void
at_most (uint64_t *least, uint64_t value)
{
  if (*least > value)
    *least = value;
}

/* Until HEAD reaches its end or, while its process's slice is over, the end of a piece.  */
static uint64_t
until_end (const struct softgpu_state *state, unsigned gpu, const struct softgpu_command *head)
{
  if (softgpu_draining (state, gpu) && head->piece_ns && head->left_ns % head->piece_ns)
    return head->left_ns % head->piece_ns;
  return head->left_ns;
}

uint64_t
softgpu_next_event (struct softgpu_state *state, unsigned gpu)
{
  const struct softgpu_gpu *device = &state->gpu[gpu];
  uint64_t least = device->switch_left_ns ? device->switch_left_ns : UINT64_MAX;
  FOR_BACKLOGGED (slot, state, gpu)
    {
      bool has_gpu = softgpu_has_gpu (state, gpu, slot);
      FOR_LANES (lane, head, state, gpu, slot)
        if (has_gpu && softgpu_goes_on (state, gpu, head))
          at_most (&least, until_end (state, gpu, head));
        else if (softgpu_over_bus (head) && head->state == SOFTGPU_RUNNING)
          at_most (&least, head->left_ns);
    }
  if (!device->switch_left_ns && device->slice_left_ns && contended (state, gpu))
    at_most (&least, device->slice_left_ns);
  return least;
}

/* SLOT's started commands go on for RAN; whether a kernel of it ran.  */
static bool
run_slot (struct softgpu_state *state, unsigned gpu, unsigned slot, uint64_t ran)
{
  bool has_gpu = softgpu_has_gpu (state, gpu, slot), any = false;
  FOR_LANES (lane, head, state, gpu, slot)
    if (has_gpu && softgpu_goes_on (state, gpu, head))
      {
        head->left_ns -= ran;
        softgpu_queue (state, gpu, slot)->thread_ns += ran * head->width;
        any = true;
      }
    else if (softgpu_over_bus (head) && head->state == SOFTGPU_RUNNING)
      head->left_ns -= ran;
  if (any)
    {
      struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
      queue->held_ns += ran;
      softgpu_count_busy (queue->period, state->gpu[gpu].clock_ns, ran);
    }
  return any;
}

/* SLOT's commands wait for RAN while another process's kernel runs. NVML takes that for work.  */
static void
wait_slot (struct softgpu_state *state, unsigned gpu, unsigned slot, uint64_t ran)
{
  struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  queue->waited_ns += ran;
  if (state->clock == SOFTGPU_UNKIND && softgpu_has_work (state, gpu, slot))
    softgpu_count_busy (queue->period, state->gpu[gpu].clock_ns, ran);
}

static void
spend_slice (struct softgpu_state *state, unsigned gpu, uint64_t ran)
{
  struct softgpu_gpu *device = &state->gpu[gpu];
  if (softgpu_draining (state, gpu))
    return;
  if (ran < device->slice_left_ns || contended (state, gpu))
    device->slice_left_ns -= ran;
  else /* alone: slices follow each other */
    device->slice_left_ns = state->slice_ns - (ran - device->slice_left_ns) % state->slice_ns;
}

/* RAN nanoseconds pass, in which nothing begins or ends.  */
static void
pass (struct softgpu_state *state, unsigned gpu, uint64_t ran)
{
  struct softgpu_gpu *device = &state->gpu[gpu];
  bool busy = false, switching = device->switch_left_ns;
  FOR_BACKLOGGED (slot, state, gpu)
    busy |= run_slot (state, gpu, slot, ran);
  if (busy)
    {
      FOR_BACKLOGGED (slot, state, gpu)
        if (!softgpu_has_gpu (state, gpu, slot))
          wait_slot (state, gpu, slot, ran);
      if (state->clock != SOFTGPU_MPS)
        spend_slice (state, gpu, ran);
      softgpu_count_busy (device->period, device->clock_ns, ran);
      device->busy_ns += ran;
    }
  else if (switching)
    {
      device->switch_left_ns -= ran;
      device->switch_ns += ran;
    }
  else
    {
      device->slice_left_ns = state->slice_ns;
      device->idle_ns += ran;
    }
  device->clock_ns += ran;
}

void
softgpu_advance (struct softgpu_state *state, unsigned gpu, uint64_t now)
{
  struct softgpu_gpu *device = &state->gpu[gpu];
  if (!device->clock_ns)
    device->clock_ns = device->begun_ns = now;
  for (;;)
    {
      settle (state, gpu);
      if (device->clock_ns >= now)
        return;
      uint64_t step = softgpu_next_event (state, gpu), left = now - device->clock_ns;
      pass (state, gpu, step < left ? step : left);
    }
}
