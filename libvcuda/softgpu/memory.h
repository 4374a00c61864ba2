/* What this process has allocated.  */

#ifndef SOFTGPU_MEMORY_H
#define SOFTGPU_MEMORY_H

#include "driver.h"

enum where
{
  ON_DEVICE,
  MANAGED, /* counts as the device's, and the host may touch it */
  ON_HOST,
  REGISTERED, /* the host's own, made known by cuMemHostRegister */
};

struct block
{
  uintptr_t start;
  size_t bytes;  /* as asked for, and as counted */
  size_t mapped; /* 0: from the heap, or the host's own */
  CUcontext context;
  CUdevice device;
  enum where where;
  unsigned flags;
  CUmemoryPool pool; /* NULL: from none that counts */
};

struct CUmemPoolHandle_st
{
  uint32_t kind;
  CUdevice device;
  size_t most_bytes; /* 0: the GPU's memory is the limit */
  _Atomic size_t used_bytes;
  _Atomic size_t high_bytes;
  cuuint64_t release_threshold;
};

/* Allocates BYTES in the current context, from POOL if that is not NULL.  */
CUresult softgpu_allocate (uintptr_t *address, size_t bytes, enum where where, unsigned flags,
                           CUmemoryPool pool);

/* Which kinds of block a call may free.  */
enum softgpu_kind_set
{
  COUNTED = 1 << ON_DEVICE | 1 << MANAGED,
  PINNED = 1 << ON_HOST,
  HOSTS_OWN = 1 << REGISTERED,
};

/* Frees the block that begins at ADDRESS, if it is of KINDS; else CUDA_ERROR_INVALID_VALUE.  */
CUresult softgpu_release (uintptr_t address, enum softgpu_kind_set kinds);

/* Makes memory of the host's known.  */
CUresult softgpu_register (uintptr_t address, size_t bytes, unsigned flags);

/* Bytes of DEVICE's memory that all live processes hold.  */
uint64_t softgpu_held (CUdevice device);

/* Counts BYTES in POOL; false where they are more than it may hold.  */
bool softgpu_pool_take (CUmemoryPool pool, size_t bytes);
void softgpu_pool_return (CUmemoryPool pool, size_t bytes);

/* Copies the block that ADDRESS lies in to *FOUND.  */
bool softgpu_find_block (uintptr_t address, struct block *found);

#endif
