/* A process's attachment to the state file: the mapping, its slot, and the shared lock.  */

#pragma once

#include <stdbool.h>

#include "state/state.h"

struct attachment
{
  int fd; /* -1: not attached */
  struct softgpu_state *state;
  unsigned slot;
  uint32_t lock_id; /* what the shared lock holds while it is ours */
  unsigned gpu_count;
  unsigned mig_count;
  /* The GPUs that this process may open, then the MIG devices, by index in the state.  */
  unsigned gpu[SOFTGPU_MAX_ENTRIES];
};

enum attach_result
{
  ATTACHED,
  ATTACH_NO_DRIVER, /* no state file, or not one of ours */
  ATTACH_NO_PERMISSION,
  ATTACH_FULL, /* every slot is held by a live process */
};

/* What every exported call looks at first: the attention word of this process's slot, or a word
   that stays 0 where there is none.  */
extern _Atomic uint32_t *softgpu_attention;

/* The error that was ordered for this call of NAME; 0: none. A call that was ordered to hang
   returns after `softgpu heal`. GPU: the one that the call names, counted from 1; 0: none, or
   unknown.  */
int softgpu_ordered_error (struct softgpu_state *state, const char *name, unsigned gpu);

struct softgpu_paths
{
  char state[4096];   /* the state file */
  char devices[4096]; /* the folder of the device nodes */
};

/* Finds the state file and the device nodes; false: there is no state file.  */
bool softgpu_find (struct softgpu_paths *paths);

/* Finds the state file, maps it, takes a slot and looks which GPUs this process may open.  */
enum attach_result softgpu_attach (struct attachment *tie, enum softgpu_slot_kind kind);

/* The same with the state file at PATHS.  */
enum attach_result softgpu_attach_at (struct attachment *tie, const struct softgpu_paths *paths,
                                      enum softgpu_slot_kind kind);

/* Gives the slot back. The mapping stays: another thread may still be reading it.  */
void softgpu_detach (struct attachment *tie);

/* In the child of a fork: lets go of the parent's slot, which must die with the parent alone.  */
void softgpu_forget (struct attachment *tie);

/* With the lock held: ends the contexts of the process in SLOT, and its calls return ERROR.  */
void softgpu_fault (struct softgpu_state *state, unsigned slot, uint32_t error);

/* The same for all clients of the MPS server in the slot SERVER.  */
void softgpu_fault_clients (struct softgpu_state *state, unsigned server, uint32_t error);

void softgpu_lock (struct attachment *tie);
void softgpu_unlock (struct attachment *tie);

/* With the lock held: a change of another process's SLOT is whole, or is not made at all.  */
void softgpu_begin_change (struct softgpu_state *state, const struct softgpu_slot *slot);
void softgpu_end_change (struct softgpu_state *state);

/* With the lock held: gives back what dead processes held.  */
void softgpu_reap (struct attachment *tie);
bool softgpu_slot_alive (struct attachment *tie, unsigned slot);

/* What the process in SLOT has of GPU. With the lock held.  */
struct softgpu_use softgpu_use_of (const struct softgpu_state *state, unsigned slot, unsigned gpu);

/* Whether ENTRY of the state is a GPU or a MIG device that this process may open.  */
bool softgpu_may_open (const struct softgpu_state *state, const char *devices, unsigned entry);

/* Whether this process may use what is behind DEVICES/<NAME><MINOR>.  */
bool softgpu_visible (const char *devices, const char *name, unsigned minor);

/* What the shared lock holds while the owner of SLOT in its GENERATION has it; never 0.  */
#define SOFTGPU_LOCK_SLOT_BITS 10
#define SOFTGPU_LOCK_WAITERS 0x80000000u
_Static_assert (SOFTGPU_MAX_SLOTS < 1 << SOFTGPU_LOCK_SLOT_BITS, "a slot fits the lock word");

static inline uint32_t
softgpu_lock_id (unsigned slot, uint32_t generation)
{
  return (generation << SOFTGPU_LOCK_SLOT_BITS & ~SOFTGPU_LOCK_WAITERS) | (slot + 1);
}

static inline struct softgpu_slot *
softgpu_own_slot (struct attachment *tie)
{
  return &tie->state->slot[tie->slot];
}
