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
  uint64_t seed;
  bool seeded;
  unsigned gpus;
};

/* softgpu fail: orders failures; softgpu heal: takes all of them back.  */
int order_failures (int argc, char **argv);
int heal (const char *root);

/* Makes the state file, whole or not at all; returns it mapped.  */
struct softgpu_state *make_state (const struct wish *wish);

#endif
