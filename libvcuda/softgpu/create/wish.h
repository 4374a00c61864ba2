/* What softgpu was asked to make.  */

#ifndef SOFTGPU_WISH_H
#define SOFTGPU_WISH_H

#include <stdbool.h>

#include "state/state.h"

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
  uint64_t bus_rate;
  struct softgpu_topology topology;
  uint64_t seed;
  bool seeded;
  unsigned gpus;
  const char *mig[SOFTGPU_MAX_GPUS]; /* what --mig says, as often as it was said */
  unsigned migs;
};

/* softgpu fail: orders failures; softgpu heal: takes all of them back.  */
int order_failures (int argc, char **argv);
int heal (const char *root);

/* The groups that TEXT says, such as "nvlink=4,numa=4", or fails.  */
void read_topology (const char *text, struct softgpu_topology *topology);

/* Divides the GPU of ROOT that TEXT names into the MIG devices that it says, in place of those that
   it has, or fails: "1=1g.4gb,2g.8gb".  */
void divide (const char *root, struct softgpu_state *state, const char *text);

/* The state of a driver root, mapped, or fails.  */
struct softgpu_state *open_state (const char *root);

/* Writes on which NUMA node each GPU is, where that was asked for.  */
void describe_numa (const struct wish *wish, const struct softgpu_state *state);

/* Makes the state file, whole or not at all; returns it mapped.  */
struct softgpu_state *make_state (const struct wish *wish);

#endif
