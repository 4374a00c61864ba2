/* Striped open addressing: a look-up costs the same with one live allocation as with a million, and
   threads contend only within a stripe.  */

#include "charge/alloc_map.h"

#include <stdlib.h>
#include <string.h>

#include "thread/clock.h"
#include "thread/in_driver.h"
#include "vcuda_abi.h"

#define STRIPES 64
/* The tables of few allocations lie in the first-level cache, all stripes together.  */
#define FIRST_CAPACITY 8
#define SPINS 32

_Static_assert (sizeof (struct vcuda_allocation) == 32, "half a cache line");

struct stripe
{
  bool locked;
  struct vcuda_allocation *entries; /* key 0 is free */
  uint32_t capacity;                /* a power of two */
  uint32_t used;
} __attribute__ ((aligned (64)));

static struct stripe stripes[STRIPES];
static unsigned managed; /* entries */

/* The lock of a stripe is one locked instruction; a mutex takes two, which is what an allocation
   costs in all. A thread that finds a stripe taken, which is rare, spins for about a microsecond,
   fifty times what the owner needs, and then sleeps: the owner was interrupted.  */
static __attribute__ ((noinline)) void
wait_for (struct stripe *stripe)
{
  int spins = 0;
  do
    while (__atomic_load_n (&stripe->locked, __ATOMIC_RELAXED))
      if (spins++ < SPINS)
        vcuda_pause ();
      else
        vcuda_sleep_ns (50000);
  while (__atomic_exchange_n (&stripe->locked, true, __ATOMIC_ACQUIRE));
}

static inline struct vcuda_thread *
lock (struct stripe *stripe)
{
  struct vcuda_thread *thread = vcuda_thread ();
  thread->in_driver++; /* as vcuda_lock does */
  if (__atomic_exchange_n (&stripe->locked, true, __ATOMIC_ACQUIRE))
    wait_for (stripe);
  return thread;
}

static inline void
unlock (struct stripe *stripe, struct vcuda_thread *thread)
{
  __atomic_store_n (&stripe->locked, false, __ATOMIC_RELEASE);
  thread->in_driver--;
}

static uint64_t
hash (uint64_t key)
{
  return key * 0x9e3779b97f4a7c15ull;
}

static struct stripe *
stripe_of (uint64_t key)
{
  return &stripes[hash (key) >> 58];
}

static uint32_t
home_of (const struct stripe *stripe, uint64_t key)
{
  /* The bits below those that chose the stripe: lower ones differ little between addresses.  */
  return (uint32_t) (hash (key) >> 26) & (stripe->capacity - 1);
}

/* Field by field, in the widths of the stores a moment ago: a load that is wider than the stores
   before it waits until they are in the cache.  */
static inline void
copy (struct vcuda_allocation *to, const struct vcuda_allocation *from)
{
  to->key = from->key;
  to->bytes = from->bytes;
  to->context = from->context;
  to->gpu = from->gpu;
  to->owner = from->owner;
  to->pool = from->pool;
}

static inline void
insert (struct stripe *stripe, const struct vcuda_allocation *allocation)
{
  uint32_t at = home_of (stripe, allocation->key);
  while (stripe->entries[at].key)
    at = (at + 1) & (stripe->capacity - 1);
  copy (&stripe->entries[at], allocation);
  stripe->used++;
}

static __attribute__ ((noinline)) bool
grow (struct stripe *stripe)
{
  /* No copy: others may write `locked` at any time.  */
  struct stripe wider = { .capacity = stripe->capacity ? stripe->capacity * 2 : FIRST_CAPACITY };
  size_t room = wider.capacity * sizeof *wider.entries;
  wider.entries = aligned_alloc (64, room);
  if (!wider.entries)
    return false;
  memset (wider.entries, 0, room);
  for (uint32_t i = 0; i < stripe->capacity; i++)
    if (stripe->entries[i].key)
      insert (&wider, &stripe->entries[i]);
  free (stripe->entries);
  stripe->entries = wider.entries;
  stripe->capacity = wider.capacity;
  return true;
}

/* Moves later entries back into the hole, so no tombstones pile up.  */
static void
remove_at (struct stripe *stripe, uint32_t hole)
{
  uint32_t mask = stripe->capacity - 1;
  for (uint32_t at = (hole + 1) & mask; stripe->entries[at].key; at = (at + 1) & mask)
    {
      uint32_t home = home_of (stripe, stripe->entries[at].key);
      if (((at - home) & mask) >= ((at - hole) & mask))
        {
          stripe->entries[hole] = stripe->entries[at];
          hole = at;
        }
    }
  stripe->entries[hole].key = 0;
  stripe->used--;
}

bool
vcuda_map_put (const struct vcuda_allocation *allocation)
{
  struct stripe *stripe = stripe_of (allocation->key);
  struct vcuda_thread *thread = lock (stripe);
  bool room = (stripe->used + 1) * 2 <= stripe->capacity || grow (stripe)
              || stripe->used + 1 < stripe->capacity;
  if (room)
    insert (stripe, allocation);
  if (room && allocation->owner == VCUDA_MANAGED)
    __atomic_fetch_add (&managed, 1, __ATOMIC_RELAXED);
  unlock (stripe, thread);
  return room;
}

static inline bool
look_up (uint64_t key, struct vcuda_allocation *found, bool take)
{
  struct stripe *stripe = stripe_of (key);
  bool hit = false;
  struct vcuda_thread *thread = lock (stripe);
  if (key && stripe->used)
    for (uint32_t at = home_of (stripe, key); stripe->entries[at].key;
         at = (at + 1) & (stripe->capacity - 1))
      if (stripe->entries[at].key == key)
        {
          copy (found, &stripe->entries[at]);
          if (take)
            remove_at (stripe, at);
          if (take && found->owner == VCUDA_MANAGED)
            __atomic_fetch_sub (&managed, 1, __ATOMIC_RELAXED);
          hit = true;
          break;
        }
  unlock (stripe, thread);
  return hit;
}

bool
vcuda_map_find (uint64_t key, struct vcuda_allocation *found)
{
  return look_up (key, found, false);
}

bool
vcuda_map_take (uint64_t key, struct vcuda_allocation *found)
{
  return look_up (key, found, true);
}

static bool
ends_with_context (const struct vcuda_allocation *entry)
{
  return entry->owner == VCUDA_OF_CONTEXT || entry->owner == VCUDA_MANAGED;
}

void
vcuda_map_take_context (void *context, uint64_t *bytes,
                        void (*lost) (uint16_t pool, uint64_t bytes))
{
  for (int s = 0; s < STRIPES; s++)
    {
      struct stripe *stripe = &stripes[s];
      struct vcuda_thread *thread = lock (stripe);
      for (uint32_t at = 0; at < stripe->capacity;)
        {
          const struct vcuda_allocation *entry = &stripe->entries[at];
          bool dies = entry->key && entry->context == context
                      && (ends_with_context (entry) || (lost && entry->owner == VCUDA_OF_POOL));
          if (!dies)
            {
              at++;
              continue;
            }
          if (entry->owner == VCUDA_OF_POOL)
            lost (entry->pool, entry->bytes);
          else if (entry->gpu >= 0)
            bytes[entry->gpu] += entry->bytes;
          if (entry->owner == VCUDA_MANAGED)
            __atomic_fetch_sub (&managed, 1, __ATOMIC_RELAXED);
          remove_at (stripe, at); /* another entry may be here now: check again */
        }
      unlock (stripe, thread);
    }
}

void
vcuda_map_held (uint64_t *bytes)
{
  for (int s = 0; s < STRIPES; s++)
    {
      struct vcuda_thread *thread = lock (&stripes[s]);
      for (uint32_t at = 0; at < stripes[s].capacity; at++)
        {
          const struct vcuda_allocation *entry = &stripes[s].entries[at];
          if (entry->key && ends_with_context (entry) && entry->gpu >= 0
              && entry->gpu < VCUDA_MAX_GPUS)
            bytes[entry->gpu] += entry->bytes;
        }
      unlock (&stripes[s], thread);
    }
}

unsigned
vcuda_map_managed (void)
{
  return __atomic_load_n (&managed, __ATOMIC_RELAXED);
}

void
vcuda_map_forget (void)
{
  managed = 0;
  /* A thread that the child does not have may have held a lock, in the middle of a change: start
     with empty tables and leave the old ones alone.  */
  memset (stripes, 0, sizeof stripes);
}
