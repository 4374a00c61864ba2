/* A process's commands on one GPU: a ring of entries, of which each lane is a linked list. See
   engine.h for what runs when. All of these are called with the shared lock held.

   A process that is killed amid a call leaves its own queue torn, which is cleared, and another's
   with a finished command at the head of a lane, which the next finisher drops.  */

#pragma once

#include <stdbool.h>

#include "state/state.h"

static inline struct softgpu_slot_gpu *
softgpu_queue (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  return &state->slot[slot].gpu[gpu];
}

/* Makes the memory of a process's commands present: on a file system on a disk the first write to a
   page takes milliseconds, and a launch would seem to take them.  */
void softgpu_touch_queue (struct softgpu_state *state, unsigned gpu, unsigned slot);

static inline struct softgpu_command *
softgpu_command_at (struct softgpu_state *state, unsigned gpu, unsigned slot, uint64_t number)
{
  size_t row = (size_t) gpu * SOFTGPU_MAX_SLOTS + slot;
  return &state->command[row * SOFTGPU_COMMANDS + number % SOFTGPU_COMMANDS];
}

/* The first unfinished command of LANE; NULL: there is none.  */
static inline struct softgpu_command *
softgpu_lane_head (struct softgpu_state *state, unsigned gpu, unsigned slot, unsigned lane)
{
  uint64_t first = softgpu_queue (state, gpu, slot)->lane[lane].first;
  return first ? softgpu_command_at (state, gpu, slot, first - 1) : NULL;
}

/* The threads that kernels of PROCESS may fill at a time. An MPS client's percentage counts in
   pairs of multiprocessors, rounded down, at least one: 30 % of an H200's 132 are 38.  */
static inline uint64_t
softgpu_most_width (const struct softgpu_slot *process)
{
  if (process->mps_partition)
    return (uint64_t) process->mps_multiprocessors * SOFTGPU_MULTIPROCESSOR_THREADS;
  if (!process->mps_percent || process->mps_percent >= 100)
    return SOFTGPU_WHOLE;
  uint64_t pairs = (uint64_t) process->mps_percent * (SOFTGPU_MULTIPROCESSORS / 2) / 100;
  return (pairs ? pairs : 1) * 2 * SOFTGPU_MULTIPROCESSOR_THREADS;
}

/* Walks the lanes that have commands; HEAD is the first command of each.  */
#define FOR_LANES(lane, head, state, gpu, slot)                                                    \
  for (uint32_t lanes_left = softgpu_queue (state, gpu, slot)->lanes, lane;                        \
       lanes_left && (lane = (uint32_t) __builtin_ctz (lanes_left), true);                         \
       lanes_left &= lanes_left - 1)                                                               \
    for (struct softgpu_command *head = softgpu_lane_head (state, gpu, slot, lane); head;          \
         head = NULL)

/* Walks the slots that have commands on the GPU.  */
#define FOR_BACKLOGGED(slot, state, at)                                                            \
  for (unsigned slot_word = 0; slot_word < SOFTGPU_MAX_SLOTS / 64; slot_word++)                    \
    for (uint64_t slots_left = (state)->gpu[at].backlogged[slot_word], slot;                       \
         slots_left && (slot = slot_word * 64 + (unsigned) __builtin_ctzll (slots_left), true);    \
         slots_left &= slots_left - 1)

/* Appends a copy of COMMAND to its lane; returns its number. The ring has room.  */
uint64_t softgpu_append (struct softgpu_state *state, unsigned gpu, unsigned slot,
                         const struct softgpu_command *command);

bool softgpu_command_done (struct softgpu_state *state, unsigned gpu, unsigned slot,
                           uint64_t number);

/* Whether the legacy default stream, or the streams that it waits for, let the head of LANE
   begin.  */
bool softgpu_unblocked (const struct softgpu_slot_gpu *queue, unsigned lane);

/* Takes the finished head of LANE off.  */
void softgpu_drop_head (struct softgpu_state *state, unsigned gpu, unsigned slot, unsigned lane);

/* What a process waits for: commands of its queue.  */
struct softgpu_target
{
  uint64_t below; /* a command's number + 1; 0: nothing */
  enum
  {
    SOFTGPU_ONE,      /* that command */
    SOFTGPU_ALL,      /* every command up to it */
    SOFTGPU_BLOCKING, /* every one that the legacy default stream waits for */
  } scope;
};

bool softgpu_reached (struct softgpu_state *state, unsigned gpu, unsigned slot,
                      struct softgpu_target target);

/* Forgets all commands: of a process without contexts, which a fault has ended.  */
void softgpu_drop_all (struct softgpu_state *state, unsigned gpu, unsigned slot);

/* Moves the ring's tail past what is done; called after heads were dropped.  */
void softgpu_move_tail (struct softgpu_state *state, unsigned gpu, unsigned slot);
