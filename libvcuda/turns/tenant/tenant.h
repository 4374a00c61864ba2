/* One container on one GPU: what the keeper writes to it, and reads of it.

   A tenant is busy while its queue may hold work. The shim clears its BUSY mark when it has seen
   the queue empty. A program that computes on the host meanwhile cannot see that: then the shim's
   own estimate of the end counts, and where that is wrong, the driver slices one kernel.  */

#pragma once

#include "tenant/tenant_state.h"

/* Whether it was active so recently that it is expected to be so again.  */
bool tenant_is_recent (const struct tenant *tenant, uint64_t now);
uint64_t tenant_recent_until (const struct tenant *tenant);

/* Reads what its processes say. LIVE: find out which of them have ended.  */
void tenant_read (struct tenant *tenant, uint64_t now, bool live);

/* Its bell woke the thread; a wake-up counts also where the bell has not changed.  */
void tenant_woke (struct tenant *tenant);

/* Whether its bell is left out for now: it rang too often.  */
bool tenant_is_muted (const struct tenant *tenant);

/* Others wait for its queue, since blocks_ns at the latest.  */
void tenant_blocks (struct tenant *tenant, uint64_t now);

/* When TENANT, which has the turn, is to be read again where it does not ring: UNTIL_NS or later,
   the turn's end.  */
uint64_t tenant_late_ns (const struct tenant *tenant, uint64_t now, uint64_t until_ns);

/* Likewise, while others wait for its queue.  */
uint64_t tenant_check_ns (const struct tenant *tenant, uint64_t now);

/* Whether it has used its turn, and its threads wait for the next one.  */
bool tenant_has_stopped (const struct tenant *tenant);

/* Writes enum vcuda_turn STATE, and wakes its threads where they have to know it. UNTIL_NS:
   turn_until_ns of VCUDA_TURN_HELD and VCUDA_TURN_OPEN.  */
void tenant_write_word (struct tenant *tenant, uint32_t state, uint64_t until_ns);

/* Lets it use the GPU by its own bucket, which takes over its budget.  */
void tenant_open (struct tenant *tenant);

/* After that, when it had the GPU alone for ALONE_NS: the budget takes the bucket over.  */
void tenant_take_over_bucket (struct tenant *tenant, uint64_t alone_ns, uint64_t now);

/* It takes part in turns no more, for now: its bucket pays, and nothing of its past counts later.
 */
void tenant_leave (struct tenant *tenant);

/* Renews the lease where it ends soon.  */
void tenant_renew_lease (struct tenant *tenant, uint64_t now);

/* Writes its totals.  */
void tenant_publish (const struct tenant *tenant);
