/* The line of those that wait for the bucket of GPU time: threads of a process, and processes of
   the container. The one that waits longest goes first. Without it, one that finds the bucket
   filled would take all at once, while the others wait until it holds a whole portion.

   Of the threads of a process, whatever context they use, two words name the first. Processes find
   each other in the kernel, by OFD locks on bytes of the usage page's file. A byte stands for a
   number of microseconds: when the first thread of a process began to wait; how long its launch
   takes, if that is longer than a burst; when the process began its last burst. So no place
   outlives its process, and the page needs no word.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

/* NOW: of CLOCK_MONOTONIC, as all moments. BEGAN: since when the thread waits; 0: it does not.  */
bool vcuda_line_is_first (int gpu, uint64_t began, uint64_t now);

/* How much the bucket has to hold for a thread that waits. More where other processes wait too:
   each change between processes costs time of the GPU, so each takes several portions at a time. */
uint64_t vcuda_line_enough (int gpu, uint64_t now);

/* For the thread that is first: whether the bucket HAS_ENOUGH for it, and its process is first too,
   goes on with its portions, or finds that the one before it does not poll. COST: of its launch. */
bool vcuda_line_passes (int gpu, bool has_enough, uint64_t began, uint64_t now, uint64_t cost);

/* The thread that is first waits, for a launch that takes COST.  */
void vcuda_line_join (int gpu, uint64_t began, uint64_t now, uint64_t cost);

/* The thread does not wait for the bucket any more; nothing if it was not first.  */
void vcuda_line_leave (int gpu, uint64_t began);

/* In the child after a fork.  */
void vcuda_line_forget (void);
