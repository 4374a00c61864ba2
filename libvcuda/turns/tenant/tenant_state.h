/* What the keeper knows of one container on one GPU.  */

#pragma once

#include "tenant/container.h"
#include "tenant/queue.h"

/* How much later than its own estimate a queue may end.  */
#define ESTIMATE_ERROR_NS (3 * MS / 2)

struct tenant
{
  struct container *container;
  unsigned gpu;                    /* index in its pages */
  struct vcuda_limits_gpu *limits; /* its entry of the limits page */
  struct claimant claim;
  struct signals signals;
  bool readable;       /* its usage page could be read */
  bool suspended;      /* off the GPU, whatever its page says: it has no work and wants no turn */
  bool resumed;        /* since the reading before: it is like a new one */
  bool rang;           /* since the reading before */
  bool rings;          /* its last turn ended by a ring */
  unsigned steady;     /* turns in a row in which it was not found idle without a ring */
  unsigned used_turns; /* turns in a row that it used to the end */
  bool busy;           /* its queue is believed to hold work */
  bool may_hold_work;  /* it was not found idle since its last turn */
  uint64_t active_ns;  /* when it last wanted or used the GPU */
  uint64_t idle_ns;    /* when it was found idle, in its turn; 0: it was not */
  uint64_t blocks_ns;  /* since when others wait for its queue; 0: none does */
  uint64_t ring_debt_ns, read_ns;
  uint32_t suspensions; /* how often it has been resumed */
  bool reports_ends;    /* ends.h */
  uint32_t ends;        /* those of its processes, as last read */
  uint64_t ended_ns;    /* when the last of them was read */

  /* What the keeper has written to its limits page.  */
  uint32_t word;
  uint64_t lease_ns;
  uint32_t open_word; /* the last OPEN word */

  /* At its last grant.  */
  uint32_t granted_begun;                    /* signals.work_begun */
  uint64_t granted_held_ns, granted_busy_ns; /* held_ns, signals.busy_ns */

  /* Totals. It waits for its share while no container has the GPU and its own budget is used up,
     otherwise for its turn. Lost is what of its turns it left the GPU idle, by its own page. Free
     is time in which it could use the GPU without a turn, false that in which its signals were.  */
  uint64_t held_ns, waited_ns, waited_for_share_ns, lost_ns, free_ns, false_ns;
  uint64_t waited_before_ns; /* of waited_ns, under earlier keepers */
  uint64_t pass_ns;          /* usually lost when it passes the GPU on */

  uint16_t hidden_ms; /* GPU time used beside its turns, modulo 2^16, as last read */

  /* Doubt: doubt.h.  */
  uint64_t distrusted_until_ns, distrust_ns;
  bool forged;            /* until distrusted_until_ns its marks say nothing */
  bool lied;              /* it says that it uses the GPU without a turn */
  uint64_t lies_ns;       /* how long it made others wait lately by that */
  int64_t blocks_debt_ns; /* claim.debt_ns at blocks_ns */
  uint64_t live_due_ns;   /* when its locks may be queried again */

  /* Use of the GPU together with others: together.h. Sums are weighted by age.  */
  bool joined;
  unsigned yielded; /* turns in a row that it gave on before their end */
  uint64_t turn_ended_ns;
  uint64_t used_ns, used_in_ns; /* GPU time that it used, in how much time */
  uint64_t in_turns_ns;         /* how long its turns were */
  unsigned noted;               /* turns in a row that are counted in begun and begun_in_ns */
  uint64_t begun, begun_in_ns;  /* how often it began its work, in how much time */
  uint32_t noted_begun;         /* signals.work_begun at the end of its last turn */
  bool checked_busy;            /* busy, signals.work_begun and signals.busy_ns at the last check */
  uint32_t checked_begun;
  uint64_t checked_busy_ns;

  /* Room for others' memory: room.h.  */
  bool room_known; /* room_asked was read once */
  uint32_t room_asked;
  uint64_t room_ns; /* when others were last asked for it */

  /* Low latency: cut_in.h.  */
  bool low;
  int64_t urgent_ns;      /* time of its budget with which it may cut in */
  uint64_t beside_ns;     /* when it last cut in beside a queue */
  bool cut;               /* its queue drains beside another turn */
  bool bucket_pays;       /* and it had the GPU alone before */
  int64_t others_paid_ns; /* what others paid of that time */
};
