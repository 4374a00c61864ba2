/* The blocks and pools that this process has allocated.  */

#pragma once

#include "driver/driver.h"

struct graph_memory;

enum where
{
  ON_DEVICE,
  MANAGED, /* on the device as far as there is room, and the host may touch it */
  ON_HOST,
  REGISTERED, /* the host's own, made known by cuMemHostRegister */
  WINDOW,     /* onto memory that is counted elsewhere: a VMM mapping, another process's memory */
  OF_GRAPH,   /* counted by the device's graph memory */
};

struct block
{
  uintptr_t start;
  size_t bytes;      /* as asked for, and as counted */
  size_t mapped;     /* 0: a small block, or not ours to unmap */
  CUcontext context; /* NULL: outlives every context */
  CUdevice device;
  enum where where;
  unsigned flags;
  CUmemoryPool pool;  /* NULL: from none that counts */
  int fd;             /* what others can map, once it is shared; else -1 */
  uint64_t offset;    /* in the store: of a small block, or of a shared one */
  void *owner;        /* of a WINDOW or OF_GRAPH: what it shows */
  uint64_t access;    /* of a WINDOW: 2 bits a device, CUmemAccess_flags */
  bool for_kernels;   /* of a multicast object: no copy or set here reaches what is bound to it */
  struct block *next; /* while it is on a list */
};

struct CUmemPoolHandle_st
{
  uint32_t kind;
  CUdevice device;
  size_t most_bytes; /* 0: the GPU's memory is the limit */
  bool shareable;
  bool imported;
  size_t used_bytes;
  size_t reserved_bytes; /* on the device's account: what is used, and what the pool keeps */
  size_t used_high, reserved_high;
  cuuint64_t release_threshold;
  struct CUmemPoolHandle_st *next;
};

static inline bool
valid_pool (CUmemoryPool pool)
{
  return pool && pool->kind == MEMORY_POOL;
}

/* Allocates BYTES in the current context, from POOL if that is not NULL.  */
CUresult softgpu_allocate (uintptr_t *address, size_t bytes, enum where where, unsigned flags,
                           CUmemoryPool pool);

/* Which kinds of block a call may free.  */
enum softgpu_kind_set
{
  COUNTED = 1 << ON_DEVICE | 1 << MANAGED,
  PINNED = 1 << ON_HOST,
  HOSTS_OWN = 1 << REGISTERED,
  WINDOWS = 1 << WINDOW,
  GRAPHS = 1 << OF_GRAPH,
};

/* Frees the block that begins at ADDRESS, if it is of KINDS; else CUDA_ERROR_INVALID_VALUE.  */
CUresult softgpu_release (uintptr_t address, enum softgpu_kind_set kinds);

/* Takes BYTES of DEVICE's memory to this process's account; false when there are not so many.  */
bool softgpu_charge (CUdevice device, uint64_t bytes);
void softgpu_uncharge (CUdevice device, uint64_t bytes);

/* The same with the shared lock held.  */
bool softgpu_charge_locked (CUdevice device, uint64_t bytes);

/* Makes a copy of BLOCK known; false when it can't be, or lies over another.  */
bool softgpu_add_block (const struct block *block);

/* Takes the block that begins at ADDRESS out, if it is of KINDS. WAS: gets a copy of it, and its
   memory stays; NULL: its memory is freed.  */
bool softgpu_remove_block (uintptr_t address, enum softgpu_kind_set kinds, struct block *was);

/* With BYTES within the blocks from ADDRESS on: changes their access and maps them so.  */
void softgpu_set_access (uintptr_t address, size_t bytes, CUdevice device, unsigned access);

/* Whether a block touches BYTES from ADDRESS on.  */
bool softgpu_any_block (uintptr_t address, size_t bytes);

/* Lets others map the block at ADDRESS: its bytes move into the store.  */
bool softgpu_share_block (uintptr_t address, struct block *found);

/* Whether ADDRESS lies in a range that cuMemAddressReserve gave out.  */
bool softgpu_reserved (uintptr_t address);

/* Whether a copy may touch BYTES from ADDRESS on. HOST_TOO: memory outside of every block is the
   host's, which the driver is not told of.  */
bool softgpu_may_touch (uintptr_t address, size_t bytes, bool host_too);

/* Frees what was allocated in CONTEXT.  */
void softgpu_free_context_memory (CUcontext context);

/* Takes BYTES for POOL, from what it keeps and then from the device; false where that is not to
   be had.  */
bool softgpu_pool_take (CUmemoryPool pool, size_t bytes);
void softgpu_pool_return (CUmemoryPool pool, size_t bytes);

/* After a wait for work on DEVICE: its pools give back what they keep above their thresholds.  */
void softgpu_pools_waited (CUdevice device);

/* Takes the memory for BYTES more to the device's graph memory, as far as it has none to spare.  */
bool softgpu_reserve_graph_memory (CUdevice device, uint64_t bytes);
CUresult softgpu_begin_graph_memory (struct graph_memory *memory);

/* An allocation that a graph made was freed: its memory is the graphs' again.  */
void softgpu_graph_memory_freed (struct graph_memory *memory);

/* Copies the block that ADDRESS lies in to *FOUND.  */
bool softgpu_find_block (uintptr_t address, struct block *found);
