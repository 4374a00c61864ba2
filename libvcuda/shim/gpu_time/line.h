/* The line of those that wait for the bucket of GPU time: threads of a process, and processes of
   the container. The one that waits longest goes first. Otherwise one that finds the bucket filled
   at once would take all, while the others wait until it holds a whole portion.

   Of the threads of a process, which share a meter, two words name the first. Of processes the
   kernel knows it: the first thread of each holds an OFD lock on the usage page's file, on the byte
   of the microsecond since which it waits, so no place outlives its process, and the page needs no
   word.
 */

#ifndef VCUDA_LINE_H
#define VCUDA_LINE_H

#include <stdbool.h>
#include <stdint.h>

/* Of one meter, under its lock.  */
struct vcuda_line
{
  uint64_t first_ns, first_seen_ns; /* of the thread that waits longest */
  uint64_t waits_us, uses_us;       /* the process's locked bytes; 0: none */
  uint64_t passed_us; /* places before it are of processes that do not look any more */
  uint64_t left_ns;   /* GPU time that the process takes yet before others that wait */
  uint64_t kept_ns;   /* since when the bucket had enough, and another process was first; 0: not */
};

/* NOW: of CLOCK_MONOTONIC, as all moments. BEGAN: since when the thread waits; 0: it does not.  */
bool vcuda_line_is_first (const struct vcuda_line *line, uint64_t began, uint64_t now);

/* How much the bucket has to hold for a thread that waits. More where other processes wait too:
   each change between processes costs time of the GPU, so each takes several portions at a time. */
uint64_t vcuda_line_enough (int gpu, uint64_t now);

/* For the thread that is first: whether the bucket HAS_ENOUGH for it, and its process is first too,
   goes on with its portions, or finds that the one before it does not look. COST: of its launch. */
bool vcuda_line_passes (struct vcuda_line *line, int gpu, bool has_enough, uint64_t began,
                        uint64_t now, uint64_t cost);

/* The thread that is first waits.  */
void vcuda_line_join (struct vcuda_line *line, int gpu, uint64_t began, uint64_t now);

/* The thread does not wait for the bucket any more; nothing if it was not first.  */
void vcuda_line_leave (struct vcuda_line *line, int gpu, uint64_t began);

#endif
