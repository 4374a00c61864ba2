/* Takes and holds a slot of the state file, and clears the slots of dead processes.  */

#include "state/attach.h"
#include "state/pid.h"
#include "state/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint32_t calm;
_Atomic uint32_t *softgpu_attention = &calm;

int
softgpu_ordered_error (struct softgpu_state *state, const char *name, unsigned gpu)
{
  for (unsigned i = 0; state->ordered && i < SOFTGPU_ORDERS; i++)
    {
      struct softgpu_order *order = &state->order[i];
      if (order->error && strncmp (order->call, name, sizeof order->call) == 0
          && (order->gpu == 0 || order->gpu == gpu)
          && (order->nth == 0 || atomic_fetch_add (&order->calls, 1) + 1 == order->nth))
        {
          if (order->error != SOFTGPU_HANGS)
            return order->error;
          while (order->error == SOFTGPU_HANGS)
            nanosleep (&(struct timespec){ .tv_nsec = 20000000 }, NULL);
        }
    }
  return 0;
}

static struct flock
byte_lock (uint64_t byte)
{
  return (struct flock){ .l_type = F_WRLCK, .l_start = (off_t) byte, .l_len = 1 };
}

bool
softgpu_slot_alive (struct attachment *tie, unsigned slot)
{
  if (slot == tie->slot)
    return true;
  struct flock lock = byte_lock (SOFTGPU_LOCK_BASE + slot);
  return fcntl (tie->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

struct softgpu_use
softgpu_use_of (const struct softgpu_state *state, unsigned slot, unsigned gpu)
{
  const struct softgpu_slot *process = &state->slot[slot];
  const struct softgpu_slot_gpu *queue = &process->gpu[gpu];
  struct softgpu_use use = { .gpu = gpu,
                             .pid = process->pid,
                             .pid_namespace = process->pid_namespace,
                             .held_ns = queue->held_ns,
                             .thread_ns = queue->thread_ns,
                             .kernels_submitted = queue->kernels_submitted,
                             .kernels_finished = queue->kernels_finished };
  memcpy (use.command, process->command, sizeof use.command);
  return use;
}

void
softgpu_fault (struct softgpu_state *state, unsigned slot, uint32_t error)
{
  state->slot[slot].fault = error;
  state->slot[slot].attention |= SOFTGPU_FAULTED;
  for (unsigned g = 0; g < state->entries; g++)
    softgpu_drop_all (state, g, slot);
}

void
softgpu_fault_clients (struct softgpu_state *state, unsigned server, uint32_t error)
{
  for (unsigned slot = 0; slot < state->slots_used; slot++)
    if (state->slot[slot].kind != SOFTGPU_FREE && state->slot[slot].mps_server == server + 1
        && !state->slot[slot].fault)
      softgpu_fault (state, slot, error);
}

/* The process in SLOT has ended: what becomes of the processes that it copied.  */
static void
leave_copies (struct softgpu_state *state, unsigned slot)
{
  for (unsigned i = 0; i < state->slots_used; i++)
    {
      struct softgpu_slot *target = &state->slot[i];
      bool off = target->checkpoint == SOFTGPU_PROCESS_CHECKPOINTING;
      bool on = target->checkpoint == SOFTGPU_PROCESS_RESTORING;
      if (target->copier != slot + 1 || (state->caller_end == SOFTGPU_STAYS && (off || on)))
        continue;
      if (off || on)
        target->checkpoint = state->caller_end == SOFTGPU_LOST ? SOFTGPU_PROCESS_FAILED
                             : off                             ? SOFTGPU_PROCESS_LOCKED
                                                               : SOFTGPU_PROCESS_CHECKPOINTED;
      target->copier = 0;
    }
}

static void
clear_slot (struct softgpu_state *state, unsigned slot)
{
  struct softgpu_slot *dead = &state->slot[slot];
  leave_copies (state, slot);
  if (dead->kind == SOFTGPU_MPS_SERVER)
    softgpu_fault_clients (state, slot, SOFTGPU_SERVER_DIED);
  for (unsigned g = 0; g < state->entries; g++)
    {
      if (dead->gpu[g].kernels_submitted)
        {
          state->ended[state->ended_count % SOFTGPU_ENDED] = softgpu_use_of (state, slot, g);
          state->ended_count++;
        }
      memset (&dead->gpu[g], 0, sizeof dead->gpu[g]);
      state->gpu[g].backlogged[slot / 64] &= ~(1ull << slot % 64);
    }
  for (unsigned g = 0; g < SOFTGPU_MAX_ENTRIES; g++)
    dead->place[g] = g;
  dead->checkpoint = 0;
  dead->unrestorable = 0;
  dead->copier = dead->in_custom_storage = 0;
  dead->parts_fd = 0;
  dead->shares_memory = 0;
  dead->calls = 0;
  dead->attention &= ~(uint32_t) (SOFTGPU_CHECKPOINT | SOFTGPU_FAULTED);
  dead->mps_server = dead->mps_generation = dead->mps_percent = 0;
  dead->mps_partition = dead->mps_multiprocessors = 0;
  dead->fault = 0;
  dead->kind = SOFTGPU_FREE;
  dead->pid = 0;
}

void
softgpu_reap (struct attachment *tie)
{
  struct softgpu_state *state = tie->state;
  for (unsigned slot = 0; slot < state->slots_used; slot++)
    if (state->slot[slot].kind != SOFTGPU_FREE && !softgpu_slot_alive (tie, slot))
      clear_slot (state, slot);
}

static struct softgpu_state *
map_file (int fd)
{
  struct stat file;
  if (fstat (fd, &file) != 0 || (size_t) file.st_size < sizeof (struct softgpu_state))
    return NULL;
  size_t size = (size_t) file.st_size;
  struct softgpu_state *state = mmap (NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (state == MAP_FAILED)
    return NULL;
  if (state->magic == SOFTGPU_MAGIC && state->version == SOFTGPU_VERSION
      && state->entries <= SOFTGPU_MAX_ENTRIES && size >= softgpu_state_size (state->entries))
    return state;
  munmap (state, size);
  return NULL;
}

/* The locks get an open file of their own: a mapping keeps its open file, and with it the locks,
   and a fork's child inherits the mapping.  */
static enum attach_result
map_state (struct attachment *tie, const char *path)
{
  int mapped = open (path, O_RDWR | O_CLOEXEC);
  tie->fd = open (path, O_RDWR | O_CLOEXEC);
  int error = errno;
  tie->state = mapped >= 0 && tie->fd >= 0 ? map_file (mapped) : NULL;
  if (mapped >= 0)
    close (mapped);
  if (tie->state)
    return ATTACHED;
  bool opened = tie->fd >= 0;
  softgpu_forget (tie);
  return !opened && (error == EACCES || error == EPERM) ? ATTACH_NO_PERMISSION : ATTACH_NO_DRIVER;
}

static bool
take_slot (struct attachment *tie, enum softgpu_slot_kind kind)
{
  struct softgpu_state *state = tie->state;
  struct flock attaching = byte_lock (SOFTGPU_ATTACH_LOCK);
  while (fcntl (tie->fd, F_OFD_SETLKW, &attaching) != 0)
    if (errno != EINTR)
      return false;
  bool taken = false;
  for (unsigned slot = 0; slot < SOFTGPU_MAX_SLOTS && !taken; slot++)
    {
      struct flock life = byte_lock (SOFTGPU_LOCK_BASE + slot);
      if (fcntl (tie->fd, F_OFD_SETLK, &life) != 0)
        continue;
      taken = true;
      tie->slot = slot;
      struct softgpu_slot *own = &state->slot[slot];
      /* The generation moves first: a lock that the slot's dead owner left behind is then
         no process's, and not ours.  */
      tie->lock_id = softgpu_lock_id (slot, atomic_fetch_add (&own->generation, 1) + 1);
      softgpu_lock (tie);
      clear_slot (state, slot);
      own->pid_namespace = softgpu_pid_namespace ("self");
      prctl (PR_GET_NAME, own->command);
      own->pid = (uint32_t) getpid ();
      own->kind = kind;
      own->attention = state->ordered ? SOFTGPU_ORDERED : 0;
      if (state->slots_used <= slot)
        state->slots_used = slot + 1;
      softgpu_reap (tie);
      softgpu_unlock (tie);
    }
  attaching.l_type = F_UNLCK;
  fcntl (tie->fd, F_OFD_SETLK, &attaching);
  return taken;
}

bool
softgpu_may_open (const struct softgpu_state *state, const char *devices, unsigned entry)
{
  const struct softgpu_gpu *gpu = &state->gpu[entry];
  unsigned capability = SOFTGPU_CAPABILITY_MINOR (gpu->minor, gpu->instance);
  return *gpu->uuid && softgpu_visible (devices, "nvidia", gpu->minor)
         && (!gpu->parent
             || (softgpu_visible (devices, "nvidia-caps/nvidia-cap", capability)
                 && softgpu_visible (devices, "nvidia-caps/nvidia-cap", capability + 1)));
}

static void
find_visible (struct attachment *tie, const char *devices)
{
  const struct softgpu_state *state = tie->state;
  tie->gpu_count = tie->mig_count = 0;
  for (unsigned g = 0; g < state->entries; g++)
    {
      if (!softgpu_may_open (state, devices, g))
        continue;
      if (!state->gpu[g].parent)
        tie->gpu[tie->gpu_count++] = g;
      else
        tie->gpu[tie->gpu_count + tie->mig_count++] = g;
    }
}

enum attach_result
softgpu_attach_at (struct attachment *tie, const struct softgpu_paths *paths,
                   enum softgpu_slot_kind kind)
{
  tie->fd = -1;
  tie->slot = SOFTGPU_MAX_SLOTS;
  enum attach_result result = map_state (tie, paths->state);
  if (result != ATTACHED)
    return result;
  find_visible (tie, paths->devices);
  if (!take_slot (tie, kind))
    {
      softgpu_forget (tie);
      return ATTACH_FULL;
    }
  softgpu_attention = &softgpu_own_slot (tie)->attention;
  return ATTACHED;
}

enum attach_result
softgpu_attach (struct attachment *tie, enum softgpu_slot_kind kind)
{
  struct softgpu_paths paths;
  return softgpu_find (&paths) ? softgpu_attach_at (tie, &paths, kind) : ATTACH_NO_DRIVER;
}

void
softgpu_detach (struct attachment *tie)
{
  if (tie->fd < 0)
    return;
  softgpu_attention = &calm;
  softgpu_lock (tie);
  clear_slot (tie->state, tie->slot);
  softgpu_unlock (tie);
  softgpu_forget (tie);
}

void
softgpu_forget (struct attachment *tie)
{
  softgpu_attention = &calm;
  if (tie->fd >= 0)
    close (tie->fd);
  tie->fd = -1;
}
