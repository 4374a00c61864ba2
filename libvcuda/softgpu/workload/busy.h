/* The command `busy`: loads of the shapes that programs put on a GPU.  */

#pragma once

#include <signal.h>
#include <stdint.h>

#include "workload/workload.h"

/* What one thread submits, and where.  */
struct work
{
  CUfunction spin;
  uint64_t kernel_ns; /* of one kernel */
  uint64_t first_ns;  /* of the next one; 0: as the others */
  unsigned blocks;
  unsigned stream_count;
  CUstream stream[MOST_STREAMS];
  uint64_t submitted;
  unsigned kernels;  /* of a submission */
  CUgraphExec graph; /* NULL: a submission is one kernel */
  CUstream copy_stream;
  CUdeviceptr copy_to;
  void *copy_from;
  uint64_t copy_bytes;
};

void prepare_work (struct work *work, const struct options *options, CUfunction spin);

/* Returns the stream of the submission.  */
CUstream submit_work (struct work *work);

/* The kernel vcuda_spin (u64 ns): busy for so long, in every thread.  */
CUfunction load_spin (void);

/* How long requests took, from when each was due until it was done.  */
struct requests
{
  uint64_t count, room;
  double *seconds;
};

/* One thread's loop, and what it counted.  */
struct loop
{
  const struct options *options;
  struct work work;
  CUevent done[MOST_IN_FLIGHT];
  double start, end;
  double wall_s;
  uint64_t finished; /* submissions that the host has seen the end of, in the window */
  uint64_t waits;
  double gap_s;
  double longest_s; /* between two ends that the host saw, without the gaps */
  struct requests requests;
};

void prepare_loop (struct loop *loop, const struct options *options, CUfunction spin);

/* SIGINT came: the loops end, and the report is of what was done.  */
extern volatile sig_atomic_t interrupted;

/* Runs for the loop's seconds from its start on.  */
void run_loop (struct loop *loop);
