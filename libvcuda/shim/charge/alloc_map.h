/* The allocations of this process: a pointer's or handle's size, GPU and context.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What a handle names, in bits that no user address has: two handles of different kinds may be
   equal.  */
enum vcuda_kind
{
  VCUDA_POINTER,
  VCUDA_ARRAY,
  VCUDA_MIPMAPPED_ARRAY,
  VCUDA_EXTERNAL_MEMORY,
  VCUDA_CONTEXT,
  VCUDA_PRIMARY_CONTEXT, /* of a device: its number + 1 */
  VCUDA_STACK,           /* a limit of a context, like the next two */
  VCUDA_PRINTF_FIFO,
  VCUDA_MALLOC_HEAP,
  VCUDA_MEMORY_POOL,   /* a name only, holds no memory */
  VCUDA_FOREIGN_EVENT, /* a name only: an event of another process */
};

#define VCUDA_KEY(kind, handle) ((uint64_t) (handle) ^ (uint64_t) (kind) << 60)

enum vcuda_owner
{
  VCUDA_OF_CONTEXT, /* ends with its context */
  VCUDA_MANAGED,    /* the same, and the driver cannot take it off the GPU */
  VCUDA_OF_POOL,    /* stream-ordered: its pool is charged for it */
  VCUDA_OF_DEVICE,  /* holds no memory */
};

/* 32 bytes: two fit in a cache line, and none crosses two.  */
struct vcuda_allocation
{
  uint64_t key; /* VCUDA_KEY: a device pointer, or a handle */
  uint64_t bytes;
  void *context;
  int8_t gpu;
  uint8_t owner;
  uint16_t pool; /* of VCUDA_OF_POOL: its index */
};

/* False: no host memory to remember it.  */
bool vcuda_map_put (const struct vcuda_allocation *allocation);

/* Reads the allocation at KEY. False: there is none.  */
bool vcuda_map_find (uint64_t key, struct vcuda_allocation *found);

/* Takes out the allocation at KEY. False: there is none.  */
bool vcuda_map_take (uint64_t key, struct vcuda_allocation *found);

/* Takes out all allocations of CONTEXT, and adds their bytes per GPU to BYTES, which has
   VCUDA_MAX_GPUS entries. With LOST, what pools gave to the context is taken out too and reported
   to LOST, which must not use the map.  */
void vcuda_map_take_context (void *context, uint64_t *bytes,
                             void (*lost) (uint16_t pool, uint64_t bytes));

/* Adds what is held on each GPU, without what pools hold, to BYTES, which has VCUDA_MAX_GPUS
   entries.  */
void vcuda_map_held (uint64_t *bytes);

/* How many allocations are VCUDA_MANAGED.  */
unsigned vcuda_map_managed (void);

/* In the child after a fork: the parent's allocations are not the child's.  */
void vcuda_map_forget (void);
