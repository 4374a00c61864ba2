/* Types and functions that all parts of the software libcuda.so.1 share.  */

#pragma once

/* Every version of every function is declared, under its own name, so that the compiler checks
   each definition; and only what cuda.h declares is exported.  */
#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT 1
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>

#include "engine/device_time.h"
#include "state/attach.h"
#include "state/require.h"

enum handle_kind
{
  CONTEXT = 0x58544353,
  STREAM = 0x4d525453,
  EVENT = 0x544e5645,
  MODULE = 0x4c444f4d,
  FUNCTION = 0x434e5546,
  MEMORY_POOL = 0x4c4f4f50,
  ARRAY = 0x41525241,
  MIPMAP = 0x5350494d,
  GRAPH = 0x48505247,
  GRAPH_NODE = 0x45444f4e,
  GRAPH_EXEC = 0x43455845,
  PHYSICAL = 0x53594850,
  EXTERNAL_MEMORY = 0x4d545845,
};

struct CUctx_st
{
  uint32_t kind;
  CUdevice device;
  unsigned flags;
  unsigned retained; /* primary: how often; 0 is inactive */
  bool primary;
  uint64_t id;
  uint64_t lives; /* how often it was destroyed or reset */
  struct
  {
    size_t value;   /* 0: the usual one */
    uint64_t bytes; /* of the device, above what the usual one takes */
  } limit[3];
};

/* Work of a stream, or of a whole device, that is none of the device's: see side_work.h.  */
struct side_work
{
  _Atomic uint64_t until_ns; /* the bus copies until then, by the kind clock */
  _Atomic uint64_t copy;     /* number + 1 of the last copy over the bus, by the other clocks */
  _Atomic unsigned running;  /* host functions */
};

struct CUstream_st
{
  uint32_t kind;
  CUcontext context;
  unsigned flags;
  int priority;
  uint64_t id;
  uint64_t last;           /* number + 1 of the last command; 0: none */
  struct capture *capture; /* while the stream is captured, else NULL */
  CUstream capture_next;
  CUgraphNode *frontier; /* the nodes that the next captured one depends on */
  size_t frontier_count;
  size_t frontier_room;
  struct side_work side;
};

struct CUevent_st
{
  uint32_t kind;
  CUcontext context;
  unsigned flags;
  bool recorded;
  bool stamped;
  uint64_t record; /* number + 1 of the last record */
  uint64_t time_ns;
  uint64_t waited_ns;
  uint64_t capture_id; /* of the capture that recorded it last; 0: none did */
  CUgraphNode *captured;
  size_t captured_count;
  struct shared_event *shared; /* once other processes may see it */
  uint64_t shared_offset;
};

/* One visible GPU, as this process has it. Guarded by the shared lock.  */
struct device
{
  unsigned began; /* its GPU's index in the state file at cuInit: see gpu_index */
  struct CUctx_st primary;
  CUevent recorded[SOFTGPU_COMMANDS]; /* by command: the event that takes its stamp from there */
  struct side_work side;              /* of all its streams */
};

struct driver
{
  _Atomic int ready; /* cuInit has succeeded, and this is not a fork of that process */
  bool forked;
  struct attachment tie;
  int device_count;
  struct device device[SOFTGPU_MAX_GPUS];
};

extern struct driver driver;

typedef void (*softgpu_notice) (void);

#define LEAST_PRIORITY 0
#define GREATEST_PRIORITY (-5)

/* Returns from the calling function unless the driver is initialised in this very process.  */
#define REQUIRE_DRIVER()                                                                           \
  do                                                                                               \
    if (!driver.ready)                                                                             \
      return CUDA_ERROR_NOT_INITIALIZED;                                                           \
  while (0)

/* The same, and unless the arguments are VALID.  */
#define REQUIRE_ARGUMENTS(valid)                                                                   \
  REQUIRE_DRIVER ();                                                                               \
  REQUIRE (valid, CUDA_ERROR_INVALID_VALUE)

/* Takes ITEM, if it is there, out of the list from FIRST on, which is linked by NEXT.  */
#define UNLINK(first, item, next)                                                                  \
  for (__typeof__ (item) *link_at = &(first); *link_at; link_at = &(*link_at)->next)               \
    if (*link_at == (item))                                                                        \
      {                                                                                            \
        *link_at = (item)->next;                                                                   \
        break;                                                                                     \
      }

/* Returns from the calling function unless the calling thread has a context; names it.  */
#define REQUIRE_CONTEXT(name)                                                                      \
  REQUIRE_DRIVER ();                                                                               \
  CUcontext name = softgpu_current_context ();                                                     \
  REQUIRE (name, CUDA_ERROR_INVALID_CONTEXT);                                                      \
  REQUIRE (valid_context (name), CUDA_ERROR_CONTEXT_IS_DESTROYED)

/* Returns from the calling function unless STREAM's work has a context to run in; names it.  */
#define REQUIRE_STREAM(name, stream)                                                               \
  CUcontext name = softgpu_stream_context (stream);                                                \
  REQUIRE (name, default_stream (stream) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE)

static inline bool
valid_device (CUdevice device)
{
  return device >= 0 && device < driver.device_count;
}

/* Returns from the calling function unless the driver is initialised and has DEVICE.  */
#define REQUIRE_VALID_DEVICE(device)                                                               \
  REQUIRE_DRIVER ();                                                                               \
  REQUIRE (valid_device (device), CUDA_ERROR_INVALID_DEVICE)

/* The index of a device's GPU in the state file. A restore may move the process to another one.  */
static inline unsigned
index_of_gpu (const struct device *device)
{
  return softgpu_own_slot (&driver.tie)->place[device->began];
}

static inline unsigned
gpu_index (CUdevice device)
{
  return index_of_gpu (&driver.device[device]);
}

/* The device of the GPU with this index in the state file; -1: there is none.  */
static inline CUdevice
device_of_gpu (unsigned gpu)
{
  for (CUdevice device = 0; device < driver.device_count; device++)
    if (gpu_index (device) == gpu)
      return device;
  return -1;
}

static inline struct softgpu_gpu *
gpu_of (CUdevice device)
{
  return &driver.tie.state->gpu[gpu_index (device)];
}

/* Multicast needs GPUs that NVLinks join to a switch, and whole ones.  */
static inline bool
multicast_supported (void)
{
  return driver.tie.state->topology.nvswitch && driver.device_count && !gpu_of (0)->parent;
}

/* A destroyed context's record stays, since other threads may have it on their stacks.  */
static inline bool
valid_context (CUcontext context)
{
  return context && context->kind == CONTEXT && (!context->primary || context->retained);
}

/* NULL and the two named default streams belong to the current context.  */
static inline bool
default_stream (CUstream stream)
{
  return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

static inline bool
valid_stream (CUstream stream)
{
  return !default_stream (stream) && stream->kind == STREAM;
}

CUcontext softgpu_current_context (void);

/* The calling thread's stack of contexts; a context is pushed only where it may be.  */
bool softgpu_may_push_context (void);
void softgpu_push_context (CUcontext context);
void softgpu_pop_context (void);

/* The context that STREAM's work runs in: its own, or the current one; NULL when neither is.  */
CUcontext softgpu_stream_context (CUstream stream);

/* A zeroed record for a handle of BYTES; its first field is its kind.  */
void *softgpu_new_record (size_t bytes);
void softgpu_retire (void *record, size_t bytes);

/* Called, once it is set, wherever a wait or a query shows how far streams have come.  */
extern _Atomic (softgpu_notice) softgpu_on_progress;

static inline void
softgpu_progress (void)
{
  softgpu_notice notice = softgpu_on_progress;
  if (notice)
    notice ();
}
