/* Containers that use one GPU at the same time, without turns. See together.c.  */

#pragma once

#include "keeper/gpu_state.h"

/* TENANT's turn of HELD_NS has ended, of which it used WORKED_NS. YIELDED: it gave it on.  */
void together_note_turn (struct tenant *tenant, uint64_t held_ns, uint64_t worked_ns, bool yielded,
                         uint64_t now);

/* No container has the GPU. True: those that use it now use it together from now on.  */
bool together_begins (struct gpu *gpu, uint64_t now);

/* While they do: lets others join, or ends it.  */
void together_judge (struct gpu *gpu, uint64_t now);

/* When to judge again at the latest.  */
uint64_t together_check_ns (const struct gpu *gpu);
