/* The command `busy`: loads of the shapes that programs put on a GPU.  */

#ifndef BUSY_H
#define BUSY_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include <cuda.h>

enum
{
  MOST_IN_FLIGHT = 1024,
  MOST_STREAMS = 64,
  MOST_THREADS = 64,
};

struct busy
{
  int ordinal;
  double seconds;
  uint64_t kernel_us;
  uint64_t first_us;     /* of each thread's first kernel; 0: as the others */
  unsigned depth;        /* submissions in flight; 0: wait for each */
  unsigned streams;      /* non-blocking ones, in turn; 0: the default stream */
  unsigned kernels;      /* of the graph that a submission launches; 0: it launches one kernel */
  unsigned blocks;       /* of a kernel; 0: as many as fill the GPU */
  unsigned threads;      /* that each do all this */
  uint64_t gap_us;       /* on the host, after each wait */
  uint64_t every_ms;     /* a submission is due so often, and waited for; 0: at once */
  uint64_t copy_bytes;   /* from the host, on another stream, beside each submission */
  uint64_t bytes;        /* to hold meanwhile */
  unsigned cell_kernels; /* of a notebook's cell, each waited for */
  unsigned cells;        /* of a notebook; 0: as many as the seconds allow */
  const char *wait_file;
};

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

void prepare_work (struct work *work, const struct busy *options, CUfunction spin);

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
  const struct busy *options;
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

void prepare_loop (struct loop *loop, const struct busy *options, CUfunction spin);

/* SIGINT came: the loops end, and the report is of what was done.  */
extern volatile sig_atomic_t interrupted;

/* Runs for the loop's seconds from START on.  */
void run_loop (struct loop *loop, double start);

/* Prints one line of JSON and returns the exit status.  */
int keep_busy (const struct busy *options);

/* Holds `bytes` for `seconds` or `cells` and works with them every `every_ms`: a line of JSON each
   time. Returns 1 once they are not what was written there.  */
int keep_notebook (const struct busy *options);

#endif
