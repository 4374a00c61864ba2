/* Containers with low latency, which cut into the turns of others. See cut_in.c.  */

#pragma once

#include "keeper/gpu_state.h"

/* What TENANT pays of the last NS: all of it, or its part of time in which several have work.  */
int64_t cut_in_part_ns (const struct gpu *gpu, const struct tenant *tenant, int64_t ns);

/* NS passed, of which TENANT paid PAID_NS; the container waited for a turn if WAITED.  */
void cut_in_pass_time (struct tenant *tenant, int64_t ns, int64_t paid_ns, bool waited);

/* The container that may cut in; NULL: none.  */
struct tenant *cut_in_next (const struct gpu *gpu, uint64_t now);

/* The one that cuts in now, though the queue of another has not drained; NULL: none, or not yet. */
struct tenant *cut_in_due (const struct gpu *gpu, uint64_t now);

/* When to poll for that; UINT64_MAX: no need.  */
uint64_t cut_in_check_ns (const struct gpu *gpu, uint64_t now);

/* The holder's turn ends early, because TENANT cuts in, which pays for that at once.  */
void cut_in_interrupt (struct gpu *gpu, struct tenant *tenant);

/* The holder's queue drains beside another turn from now on: no container holds the GPU.  */
void cut_in_leave_to_drain (struct gpu *gpu);

/* TENANT cuts in. Returns how long its turn may last.  */
int64_t cut_in_begin (struct gpu *gpu, struct tenant *tenant, uint64_t now);

/* Whether a queue drains beside the holder's turn.  */
bool cut_in_is_on (const struct gpu *gpu);

/* After a reading: ends what has drained, and learns whether cutting in was of use.  */
void cut_in_judge (struct gpu *gpu, uint64_t now);
