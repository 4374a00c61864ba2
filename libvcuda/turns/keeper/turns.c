/* The turns of one GPU.

   A thread sleeps on the bells of the GPU's containers. The word of an only container is NONE,
   until its bucket cannot pay: then it has turns too. While one of several uses the GPU its word is
   OPEN, the others' is WAIT, and the thread sleeps without a time limit. When another container
   rings, the word of the first changes to WAIT, and once its queue has drained turns begin: the
   holder's word is HELD, with the moment until when it may launch; it stops by itself then, drains,
   and rings. The turn passes

     when its time is over, or its budget (queue.h),
     when the holder is suspended,
     when the holder is idle, and has rung or been idle for a grace,
     when the holder's processes have died,
     when a container with low latency cuts in (cut_in.h).

   A turn that ends with an empty queue and no other container active becomes OPEN, without a pause.
   The words of several are OPEN while they use the GPU together (together.h).

   Nothing is granted while another container is busy: that is what makes a turn exclusive. Only
   one that cuts in does not wait for a queue that drains for long.  */

#include "keeper/turns.h"

#include "keeper/account.h"
#include "keeper/cut_in.h"
#include "keeper/room.h"
#include "keeper/together.h"
#include "tenant/bells.h"
#include "tenant/figures.h"

#define GRACE_NS (MS / 5)
#define CHECK_NS (9 * MS / 2)
#define LEASE_CHECK_NS (200 * MS)
/* A turn is not ended this shortly before its time.  */
#define EARLY_NS MS
/* So many turns in a row were used to the end.  */
#define USED_TURNS 16
/* Figures are written so often while turns run, and soon after the last one.  */
#define FIGURES_NS (500 * MS)
#define LAST_FIGURES_NS (10 * MS)
#define MILLION 1000000

/* Whether its own bucket can pay while it is alone: its event pairs show its GPU time, or it needs
   no bucket.  */
static bool
can_be_open (const struct tenant *tenant)
{
  return !(tenant->signals.marks & VCUDA_TURN_MIXED) || tenant->claim.rate_ppm >= MILLION;
}

static void
set_turns (struct gpu *gpu, uint64_t now)
{
  int recent = 0;
  bool used = true;
  uint64_t pass_ns = 0;
  for (int i = 0; i < gpu->count; i++)
    if (tenant_is_recent (gpu->tenants[i], now))
      {
        recent++;
        used &= gpu->tenants[i]->used_turns >= USED_TURNS;
        /* By a false page it is too much, and turns are LONGEST_TURN_NS.  */
        pass_ns = gpu->tenants[i]->pass_ns > pass_ns ? gpu->tenants[i]->pass_ns : pass_ns;
      }
  for (int i = 0; i < gpu->count; i++)
    {
      struct tenant *tenant = gpu->tenants[i];
      tenant->claim.returns = tenant->used_turns && tenant_is_recent (tenant, now);
      bool sole = recent == 1 && !can_be_open (tenant) && tenant_is_recent (tenant, now);
      tenant->claim.turn_ns
          = sole ? SOLE_TURN_NS : queue_length_ns (recent, (int64_t) pass_ns, used);
    }
}

static bool
others_are_recent (const struct gpu *gpu, const struct tenant *tenant, uint64_t now)
{
  for (int i = 0; i < gpu->count; i++)
    if (gpu->tenants[i] != tenant && tenant_is_recent (gpu->tenants[i], now))
      return true;
  return false;
}

static bool
others_are_ready (const struct gpu *gpu)
{
  for (int i = 0; i < gpu->count; i++)
    if (gpu->tenants[i] != gpu->holder && queue_is_ready (&gpu->tenants[i]->claim))
      return true;
  return false;
}

static void
claimants_of (const struct gpu *gpu, struct claimant **claimants)
{
  for (int i = 0; i < gpu->count; i++)
    claimants[i] = &gpu->tenants[i]->claim;
}

/* Whether a container gives false signals. Its hidden work would last for the longer turn.  */
static bool
one_is_distrusted (const struct gpu *gpu, uint64_t now)
{
  for (int i = 0; i < gpu->count; i++)
    if (now < gpu->tenants[i]->distrusted_until_ns)
      return true;
  return false;
}

static int64_t
turn_among_ns (const struct gpu *gpu, const struct tenant *tenant, uint64_t now)
{
  struct claimant *claimants[gpu->count];
  if (one_is_distrusted (gpu, now))
    return queue_turn_ns (&tenant->claim);
  claimants_of (gpu, claimants);
  return queue_turn_among_ns (claimants, gpu->count, &tenant->claim);
}

/* When the holder's turn ends before its time, because another container wants one.  */
static uint64_t
early_end_ns (const struct gpu *gpu, uint64_t now)
{
  struct claimant *claimants[gpu->count];
  if (gpu->sole)
    return another_wants (gpu, gpu->holder) ? now : UINT64_MAX;
  claimants_of (gpu, claimants);
  int64_t whole = queue_whole_in (claimants, gpu->count, &gpu->holder->claim);
  if (whole == INT64_MAX)
    return UINT64_MAX;
  uint64_t then = now + (uint64_t) whole;
  then = then > gpu->least_until_ns ? then : gpu->least_until_ns;
  return then + EARLY_NS < gpu->until_ns ? then : UINT64_MAX;
}

static void
revoke_turn (struct gpu *gpu)
{
  gpu->alone_ns = gpu->open ? gpu->passed_ns - gpu->opened_ns : 0;
  gpu->revoked = true;
  gpu->open = false;
  tenant_write_word (gpu->holder, VCUDA_TURN_WAIT, 0);
}

static void
give_turn (struct gpu *gpu, struct tenant *tenant, int64_t ns, uint64_t now)
{
  if (gpu->holder != tenant)
    account_begin_turn (tenant);
  gpu->holder = tenant;
  gpu->open = gpu->revoked = gpu->yields = false;
  gpu->interrupter = NULL;
  gpu->pays = true;
  gpu->sole = ns > LONGEST_TURN_NS && tenant->claim.turn_ns > LONGEST_TURN_NS;
  gpu->until_ns = now + (uint64_t) ns;
  gpu->least_until_ns = now + (uint64_t) (ns < tenant->claim.turn_ns ? ns : tenant->claim.turn_ns);
  tenant->idle_ns = tenant->blocks_ns = 0;
  tenant->granted_begun = tenant->signals.work_begun;
  tenant_publish (tenant);
  tenant_write_word (tenant, VCUDA_TURN_HELD, gpu->until_ns);
}

static void
open_gpu (struct gpu *gpu, struct tenant *tenant, uint64_t now)
{
  if (gpu->holder == tenant)
    account_end_turn (gpu, now);
  gpu->holder = tenant;
  gpu->opened_ns = now;
  gpu->open = true;
  gpu->revoked = gpu->pays = false;
  tenant_open (tenant);
}

static void
cut_in (struct gpu *gpu, struct tenant *tenant, uint64_t now)
{
  int64_t ns = cut_in_begin (gpu, tenant, now);
  give_turn (gpu, tenant, ns, now);
}

static bool
has_yielded (const struct tenant *holder, uint64_t now)
{
  return !holder->busy && !holder->claim.wants
         && (holder->rang || (holder->idle_ns && now - holder->idle_ns >= GRACE_NS));
}

/* What becomes of the holder's turn.  */
static void
judge_holder (struct gpu *gpu, uint64_t now)
{
  struct tenant *holder = gpu->holder;
  bool wanted = another_wants (gpu, gpu->holder);
  if (holder->suspended)
    {
      revoke_turn (gpu);
      return;
    }
  if (gpu->open)
    {
      if (wanted || !can_be_open (holder))
        revoke_turn (gpu);
      return;
    }
  if (now < gpu->until_ns && early_end_ns (gpu, now) <= now)
    gpu->until_ns = now;
  /* One that has rung gives the turn on also where none waits, so that it pays for no gap. Beside a
     queue that drains each request is a turn of its own, so that its time is divided.  */
  if ((wanted || cut_in_is_on (gpu) || holder->rang) && has_yielded (holder, now))
    {
      gpu->yields = true;
      revoke_turn (gpu);
      return;
    }
  struct tenant *urgent = cut_in_next (gpu, now);
  if (urgent)
    {
      cut_in_interrupt (gpu, urgent);
      revoke_turn (gpu);
      return;
    }
  if (now < gpu->until_ns && !tenant_has_stopped (holder))
    return;
  /* What a turn began, its budget pays to the end.  */
  if (!wanted && !others_are_recent (gpu, holder, now) && !holder->busy && can_be_open (holder))
    open_gpu (gpu, holder, now);
  else if (!others_are_ready (gpu) && queue_is_ready (&holder->claim) && !cut_in_is_on (gpu))
    give_turn (gpu, holder, turn_among_ns (gpu, holder, now), now);
  else
    revoke_turn (gpu);
}

static bool
is_blocked (struct gpu *gpu, uint64_t now)
{
  bool blocked = false;
  for (int i = 0; i < gpu->count; i++)
    {
      struct tenant *tenant = gpu->tenants[i];
      /* The processes may have died that marked it.  */
      if (tenant->busy && !tenant->blocks_ns)
        tenant_read (tenant, now, true);
      tenant_blocks (tenant, now);
      blocked |= tenant->busy;
    }
  return blocked;
}

static void
grant (struct gpu *gpu, uint64_t now)
{
  struct claimant *claimants[gpu->count];
  struct tenant *only = NULL;
  int wanting = 0;
  for (int i = 0; i < gpu->count; i++)
    {
      claimants[i] = &gpu->tenants[i]->claim;
      if (claimants[i]->wants)
        {
          only = gpu->tenants[i];
          wanting++;
        }
    }
  if (wanting == 1 && can_be_open (only) && queue_may_be_alone (&only->claim)
      && !others_are_recent (gpu, only, now))
    {
      open_gpu (gpu, only, now);
      return;
    }
  if (together_begins (gpu, now))
    return;
  struct tenant *urgent = cut_in_next (gpu, now);
  int next = queue_next (claimants, gpu->count);
  if (urgent && (gpu->interrupter == urgent || next < 0 || gpu->tenants[next] != urgent))
    cut_in (gpu, urgent, now);
  else if (next >= 0)
    {
      queue_raise (claimants, gpu->count, claimants[next], (int64_t) (now - gpu->given_ns));
      gpu->given_ns = now;
      give_turn (gpu, gpu->tenants[next], turn_among_ns (gpu, gpu->tenants[next], now), now);
    }
}

/* Whether keeper and containers must know of each other being alive.  */
static bool
is_contended (const struct gpu *gpu)
{
  return (gpu->holder && !gpu->open) || another_wants (gpu, gpu->holder);
}

void
turns_write_figures (struct gpu *gpu, uint64_t now)
{
  gpu->figures_ns = now;
  gpu->new_figures = false;
  figures_write (gpu->uuid, now, gpu->lost_ns, gpu->tenants, gpu->count);
}

/* When the only container that wants the GPU may have it without turns.  */
static uint64_t
opens_at (const struct gpu *gpu)
{
  const struct tenant *only = NULL;
  uint64_t at = 0;
  for (int i = 0; i < gpu->count; i++)
    {
      const struct tenant *tenant = gpu->tenants[i];
      uint64_t until = tenant_recent_until (tenant);
      if (!tenant->claim.wants)
        at = until > at ? until : at;
      else if (only)
        return UINT64_MAX;
      else
        only = tenant;
    }
  return only && can_be_open (only) && queue_has_half (&only->claim) ? at : UINT64_MAX;
}

/* When the thread has to poll again, if no bell rings.  */
static uint64_t
next_poll (const struct gpu *gpu, uint64_t now)
{
  uint64_t next = is_contended (gpu) ? now + LEASE_CHECK_NS : UINT64_MAX;
  struct claimant *claimants[gpu->count];
  bool blocked = false;
  for (int i = 0; i < gpu->count; i++)
    {
      struct tenant *tenant = gpu->tenants[i];
      claimants[i] = &tenant->claim;
      uint64_t then = UINT64_MAX;
      /* Beside one that cut in and rests, no container waits for it.  */
      if (tenant->cut && !another_wants (gpu, gpu->holder))
        then = now + LEASE_CHECK_NS;
      else if (tenant->blocks_ns)
        then = tenant_check_ns (tenant, now);
      else if (tenant_is_muted (tenant))
        then = now + CHECK_NS;
      blocked |= tenant->blocks_ns != 0;
      next = then < next ? then : next;
    }
  uint64_t then = cut_in_check_ns (gpu, now);
  next = then < next ? then : next;
  then = UINT64_MAX;
  if (gpu->together)
    then = together_check_ns (gpu);
  else if (gpu->holder && !gpu->open && !gpu->revoked)
    {
      then = tenant_late_ns (gpu->holder, now, gpu->until_ns);
      uint64_t ends = early_end_ns (gpu, now);
      then = ends < then ? ends : then;
      if (gpu->holder->idle_ns && (another_wants (gpu, gpu->holder) || cut_in_is_on (gpu)))
        {
          uint64_t yields = gpu->holder->idle_ns + GRACE_NS;
          then = yields > now && yields < then ? yields : then;
        }
    }
  else if (!gpu->holder && !blocked)
    {
      int64_t ready = queue_ready_in (claimants, gpu->count);
      then = ready == INT64_MAX ? UINT64_MAX : now + (uint64_t) ready;
      uint64_t opens = opens_at (gpu);
      then = opens > now && opens < then ? opens : then;
    }
  return then < next ? then : next;
}

/* Whether the GPU's only container goes on without turns.  */
static bool
needs_no_turns (struct gpu *gpu)
{
  struct tenant *only = gpu->tenants[0];
  if (gpu->count > 1 || (only->word & VCUDA_TURN_STATE) != VCUDA_TURN_NONE)
    return false;
  if (can_be_open (only))
    return true;
  tenant_write_word (only, VCUDA_TURN_WAIT, 0);
  return false;
}

uint64_t
turns_poll (struct gpu *gpu, bool timed)
{
  uint64_t now = bells_now ();
  account_pass_time (gpu, now);
  for (int i = 0; i < gpu->count; i++)
    tenant_read (gpu->tenants[i], now, timed);
  room_pass_on (gpu, now);
  if (needs_no_turns (gpu))
    return next_poll (gpu, now);
  set_turns (gpu, now);
  if (gpu->together)
    together_judge (gpu, now);
  cut_in_judge (gpu, now);
  if (gpu->holder && !gpu->revoked)
    judge_holder (gpu, now);
  if (gpu->holder && gpu->revoked)
    {
      /* Again: a launch before the word changed marked BUSY.  */
      bool rang = gpu->holder->rang;
      tenant_read (gpu->holder, now, timed);
      gpu->holder->rang |= rang;
      tenant_blocks (gpu->holder, now);
      if (!gpu->holder->busy)
        {
          account_end_turn (gpu, now);
          if (!gpu->pays)
            tenant_take_over_bucket (gpu->holder, gpu->alone_ns, now);
          tenant_publish (gpu->holder);
          gpu->holder = NULL;
        }
      else if (cut_in_due (gpu, now))
        cut_in_leave_to_drain (gpu);
    }
  if (!gpu->holder && !gpu->together)
    {
      struct tenant *urgent;
      if (!is_blocked (gpu, now))
        grant (gpu, now);
      else if ((urgent = cut_in_due (gpu, now)))
        cut_in (gpu, urgent, now);
    }
  /* An answer to each ring, also of one that shows no wish: else it takes the keeper for dead.  */
  for (int i = 0; i < gpu->count; i++)
    if (is_contended (gpu) || gpu->tenants[i]->rang)
      tenant_renew_lease (gpu->tenants[i], now);
  if (gpu->new_figures
      && now - gpu->figures_ns >= (is_contended (gpu) ? FIGURES_NS : LAST_FIGURES_NS))
    turns_write_figures (gpu, now);
  return next_poll (gpu, now);
}
