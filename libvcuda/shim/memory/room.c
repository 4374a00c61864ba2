/* Asks other containers for what their pools keep, and waits for it.  */

#include "memory/room.h"

#include "gpu_time/own_turn.h"
#include "pages/pages.h"
#include "thread/clock.h"

/* How long a call waits. A keeper answers the bell within milliseconds.  */
#define ROOM_NS 250000000ull
#define KEEPER_NS 50000000ull
#define SHORTEST_PAUSE_NS 1000000ull
#define LONGEST_PAUSE_NS 16000000ull
/* The keeper passes on no more: a program that tries how much it gets must not wait at each try. */
#define ASK_AGAIN_NS 5000000000ull

static uint64_t asked_ns[VCUDA_MAX_GPUS];

static bool
ask (int gpu, uint64_t now)
{
  uint64_t last = __atomic_load_n (&asked_ns[gpu], __ATOMIC_RELAXED);
  if ((last && now - last < ASK_AGAIN_NS)
      || !__atomic_compare_exchange_n (&asked_ns[gpu], &last, now, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED))
    return false;
  __atomic_fetch_add (&vcuda_pages.usage->gpu[gpu].room_asked, 1, __ATOMIC_SEQ_CST);
  vcuda_ring (gpu);
  return true;
}

bool
vcuda_make_room (struct vcuda_room *room, int gpu)
{
  if (gpu < 0 || vcuda_thread ()->in_driver)
    return false;
  uint64_t now = vcuda_now ();
  if (!room->asked_ns)
    {
      /* Without neighbours it has no turns.  */
      if (vcuda_turn_state (gpu) == VCUDA_TURN_NONE || !ask (gpu, now))
        return false;
      *room = (struct vcuda_room){ now, SHORTEST_PAUSE_NS };
    }
  uint64_t passed = now - room->asked_ns;
  if (passed >= ROOM_NS || (passed >= KEEPER_NS && !vcuda_keeper_lives (gpu, now)))
    return false;
  vcuda_sleep_ns (room->pause_ns);
  room->pause_ns = room->pause_ns < LONGEST_PAUSE_NS ? 2 * room->pause_ns : LONGEST_PAUSE_NS;
  return true;
}
