/* What this process allocated: pointer to size, GPU and context.  */

#ifndef VCUDA_ALLOC_MAP_H
#define VCUDA_ALLOC_MAP_H

#include <stdbool.h>
#include <stdint.h>

enum vcuda_owner
{
  VCUDA_OF_CONTEXT, /* dies with its context */
  VCUDA_OF_POOL,    /* stream-ordered; its pool is charged, not it */
  VCUDA_OF_DEVICE,  /* holds no memory */
};

/* 32 bytes: two lie in a cache line and none across two.  */
struct vcuda_allocation
{
  uint64_t key; /* VCUDA_KEY: a device pointer, or a handle */
  uint64_t bytes;
  void *context;
  int8_t gpu;
  uint8_t owner;
  uint16_t pool; /* of VCUDA_OF_POOL: its index */
};

/* False when there is no host memory to remember it.  */
bool vcuda_map_put (const struct vcuda_allocation *allocation);

/* The allocation at KEY. False when it is not there.  */
bool vcuda_map_find (uint64_t key, struct vcuda_allocation *found);

/* Takes out the allocation at KEY. False when it is not there.  */
bool vcuda_map_take (uint64_t key, struct vcuda_allocation *found);

/* Takes out everything whose owner is the context and adds it per GPU to BYTES, which has
   VCUDA_MAX_GPUS entries; WITH_POOLS, what pools gave to the context too.  */
void vcuda_map_take_context (void *context, bool with_pools, uint64_t *bytes);

/* Adds what is held on each GPU, but by pools, to BYTES, which has VCUDA_MAX_GPUS entries.  */
void vcuda_map_held (uint64_t *bytes);

/* In the child after a fork: the parent's allocations are not the child's.  */
void vcuda_map_forget (void);

#endif
