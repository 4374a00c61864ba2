/* What a command line asks softgpu to create, and the steps that create it.  */

#pragma once

#include <stdbool.h>

#include "state/state.h"

struct request
{
  const char *root;
  const char *model;
  const char *driver_version;
  uint64_t memory_bytes;
  uint32_t clock; /* enum softgpu_clock */
  uint64_t slice_ns;
  uint64_t switch_ns;
  uint64_t submit_ns;
  bool no_preemption;
  bool exclusive;
  uint64_t context_bytes;
  bool no_managed;
  uint64_t copy_rate;
  uint64_t bus_rate;
  uint64_t checkpoint_rate;
  uint64_t restore_rate;
  uint32_t caller_end; /* enum softgpu_caller_end */
  struct softgpu_topology topology;
  uint64_t seed;
  bool seeded;
  unsigned gpus;
  const char *mig[SOFTGPU_MAX_GPUS]; /* one for each --mig */
  unsigned migs;
};

/* softgpu fail: orders failures; softgpu heal: removes all of them.  */
int order_failures (int argc, char **argv);
int heal (const char *root);

/* Attaches to the driver root ROOT, or fails.  */
struct attachment;
void attach_to (struct attachment *tie, const char *root);

/* softgpu time: prints how each GPU's time was spent.  */
int print_times (int argc, char **argv);

/* The options of the clock, as read_clock_option collects them.  */
struct clock_options
{
  const char *kind;      /* of --clock */
  const char *of_slices; /* the last option that only a clock with time slices has */
  const char *not_kind;  /* the last one that the kind clock lacks */
  bool mps;
};

/* Reads the option of the short form OPTION into REQUEST; false: it is none of the clock.  */
bool read_clock_option (struct request *request, struct clock_options *options, int option,
                        const char *value);

/* Chooses the clock, or fails where two options contradict each other.  */
void choose_clock (struct request *request, const struct clock_options *options);

/* Parses the groups in TEXT, such as "nvlink=4,numa=4", or fails.  */
void read_topology (const char *text, struct softgpu_topology *topology);

/* Replaces the MIG devices of a GPU of ROOT by those in TEXT, such as "1=1g.4gb,2g.8gb", or
   fails.  */
void divide (const char *root, struct softgpu_state *state, const char *text);

/* The state of a driver root, mapped, or fails.  */
struct softgpu_state *open_state (const char *root);

/* Writes the NUMA node of each GPU, where the topology has NUMA nodes.  */
void describe_numa (const struct request *request, const struct softgpu_state *state);

/* Creates the state file, whole or not at all; returns it mapped.  */
struct softgpu_state *make_state (const struct request *request);
