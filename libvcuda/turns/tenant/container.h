/* A container's pages, as the turn keeper uses them.

   The container writes its usage page: it may hold anything, and be cut at any moment, so it is
   read with mapped.h alone. The limits page is the host's alone, its blocks are there, and no other
   program writes the fields of the turns.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "vcuda_abi.h"

struct container
{
  char *id;
  int limits_fd, usage_fd;
  dev_t device;
  ino_t limits_inode, usage_inode;
  struct vcuda_limits *limits_at;
  const struct vcuda_usage *usage_at; /* never read directly */
  unsigned gpu_count;
  char uuid[VCUDA_MAX_GPUS][48];
  /* ends.h: its watch, or -1, and the number of ends, which all threads read.  */
  int watch;
  uint32_t ends;
  uint64_t noted_ns, ends_debt_ns;
};

/* Longer queries of a container's locks are made seldom.  */
#define LONG_QUERY_NS 500000ull

/* What a container's processes say of one GPU.  */
struct signals
{
  uint32_t bell, work_begun;
  uint64_t busy_until_ns, busy_ns;
  int64_t bucket_ns; /* GPU time in its bucket at filled_ns, which fills by its rate */
  uint64_t filled_ns;
  uint32_t marks;      /* enum vcuda_turn_mark, of all processes */
  bool will_clear;     /* a process that is BUSY has a thread that will clear the mark */
  uint32_t turn_taken; /* the OPEN word with the budget that its bucket took */
  uint32_t switch_ns;  /* how much longer the first work of a turn takes than later work */
  uint32_t room_asked; /* grows when the driver has no memory left within its share */
  uint64_t spent_ns;   /* processor time that queries of its locks took */
};

/* The pages of the container ID below STATE_DIR; NULL: they are missing, or are no such pages.  */
struct container *container_open (const char *state_dir, const char *id);
void container_close (struct container *container);

/* Whether the files at the pages' paths are still these, and name the same GPUs.  */
bool container_is_current (const struct container *container, const char *state_dir);

/* Whether one of its processes lives. SPENT: processor time that the query took.  */
bool container_is_live (const struct container *container, uint64_t *spent);

/* LIVE: leave out the marks of processes that have ended. False: the page cannot be read.  */
bool container_signals (const struct container *container, unsigned gpu, bool live,
                        struct signals *signals);
