/* What containers pay, and what their turns lose. See account.c.  */

#pragma once

#include "keeper/gpu_state.h"

/* The time until NOW passes: containers earn, pay and wait.  */
void account_pass_time (struct gpu *gpu, uint64_t now);

/* TENANT's turn, or its time alone, begins to count.  */
void account_begin_turn (struct tenant *tenant);

/* Counts what of the turn the holder did not work. Its page can make that more or less, and never
   more than the turn.  */
void account_end_turn (struct gpu *gpu, uint64_t now);
