/* What softgpu was asked to make.  */

#ifndef SOFTGPU_WISH_H
#define SOFTGPU_WISH_H

#include <stdbool.h>

#include "state.h"

struct wish
{
  const char *root;
  const char *model;
  const char *driver_version;
  uint64_t memory_bytes;
  uint64_t slice_ns;
  uint64_t context_bytes;
  bool no_managed;
  uint64_t copy_rate;
  struct softgpu_topology topology;
  uint64_t seed;
  bool seeded;
  unsigned gpus;
  uint32_t mig_devices[SOFTGPU_MAX_GPUS]; /* of each GPU; 0: it is not in MIG mode */
};

/* softgpu fail: orders failures; softgpu heal: takes all of them back.  */
int order_failures (int argc, char **argv);
int heal (const char *root);

/* The groups that TEXT says, such as "nvlink=4,numa=4", or fails.  */
void read_topology (const char *text, struct softgpu_topology *topology);

/* The GPU and its MIG devices that TEXT says, "1=3", or fails.  */
void read_mig (const char *text, struct wish *wish);

/* Writes on which NUMA node each GPU is, where that was asked for.  */
void describe_numa (const struct wish *wish, const struct softgpu_state *state);

/* Makes the state file, whole or not at all; returns it mapped.  */
struct softgpu_state *make_state (const struct wish *wish);

#endif
