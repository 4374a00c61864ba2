/* Physical memory that cuMemCreate makes, and what it is mapped into or bound to.  */

#pragma once

#include "memory/allocations.h"

#define VMM_GRANULE ((size_t) 2 << 20)

struct multicast;

struct physical
{
  uint32_t kind;       /* PHYSICAL */
  unsigned references; /* of handles */
  size_t uses;         /* mappings, tiles of arrays, bindings to multicast objects */
  size_t bytes;
  CUdevice device; /* the GPU that holds it for this process; -1: none, as of host memory */
  int fd;          /* its own, where it can be exported or was imported; else the store */
  bool own_fd;
  uint64_t offset;
  CUmemAllocationProp properties;
  struct multicast *multicast; /* of a multicast object, which has no memory; else NULL */
};

/* The record behind HANDLE with one more use, or NULL.  */
struct physical *softgpu_physical (CUmemGenericAllocationHandle handle);
void softgpu_physical_use (struct physical *physical, size_t times);
void softgpu_physical_unuse (struct physical *physical, size_t times);

/* A copy of MADE, with one handle: its address; NULL when there is no memory for it.  */
struct physical *softgpu_new_physical (const struct physical *made);

static inline bool
tile_pool (const struct physical *physical)
{
  return physical->properties.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL;
}

/* Sleeps until all devices are in the team of OBJECT, as the driver does before it is mapped.  */
void softgpu_await_team (struct multicast *object);

/* Unbinds all that is bound to OBJECT, which nothing uses any more.  */
void softgpu_end_multicast (struct multicast *object);
