/* The calls that queue work which does not use the GPU.  */

#include "compute/non_gpu_work.h"

#include "charge/alloc_map.h"
#include "gpu_time/credit.h"
#include "thread/clock.h"

/* A bus moves at least a byte in a nanosecond: a wait beyond that time is charged.  */
#define COPY(bytes) (uint64_t) (bytes)
/* For work of unknown length: a host function, a wait for another process.  */
#define UNKNOWN 1000000000ull

static uint64_t busy_until;
static bool foreign_events; /* whether an event of another process was opened */

/* Such work was queued, of at most NS.  */
static void
queued (uint64_t ns)
{
  uint64_t now = vcuda_now ();
  uint64_t until = __atomic_load_n (&busy_until, __ATOMIC_RELAXED);
  /* Copies run one after the other; when two threads add at once, one copy may be lost.  */
  until = ns == UNKNOWN || until < now ? now + ns : until + ns;
  if (until > __atomic_load_n (&busy_until, __ATOMIC_RELAXED))
    __atomic_store_n (&busy_until, until, __ATOMIC_RELAXED);
  vcuda_thread ()->credit.mixed = true; /* the time between two samples may include it */
}

uint64_t
vcuda_off_gpu_within (uint64_t began, uint64_t now)
{
  uint64_t until = __atomic_load_n (&busy_until, __ATOMIC_RELAXED);
  until = until < now ? until : now;
  return until > began ? until - began : 0;
}

#define OFF_GPU(name, parameters, arguments, ns)                                                   \
  CUresult vcuda_##name parameters                                                                 \
  {                                                                                                \
    CUresult rc = real.name arguments;                                                             \
    if (rc == CUDA_SUCCESS)                                                                        \
      queued (ns);                                                                                 \
    return rc;                                                                                     \
  }

/* A call in three forms: 32-bit addresses, 64-bit addresses, the thread's own stream.  */
#define COPIES(name, narrow, wide, arguments)                                                      \
  OFF_GPU (name, narrow, arguments, COPY (bytes))                                                  \
  OFF_GPU (name##_v2, wide, arguments, COPY (bytes))                                               \
  OFF_GPU (name##_v2_ptsz, wide, arguments, COPY (bytes))

COPIES (cuMemcpyHtoDAsync,
        (CUdeviceptr_v1 dst, const void *src, unsigned int bytes, CUstream stream),
        (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream),
        (dst, src, bytes, stream))
COPIES (cuMemcpyDtoHAsync, (void *dst, CUdeviceptr_v1 src, unsigned int bytes, CUstream stream),
        (void *dst, CUdeviceptr src, size_t bytes, CUstream stream), (dst, src, bytes, stream))
COPIES (cuMemcpyHtoAAsync,
        (CUarray dst, unsigned int to, const void *src, unsigned int bytes, CUstream stream),
        (CUarray dst, size_t to, const void *src, size_t bytes, CUstream stream),
        (dst, to, src, bytes, stream))
COPIES (cuMemcpyAtoHAsync,
        (void *dst, CUarray src, unsigned int from, unsigned int bytes, CUstream stream),
        (void *dst, CUarray src, size_t from, size_t bytes, CUstream stream),
        (dst, src, from, bytes, stream))

/* A call, and its form for the thread's own stream.  */
#define UNKNOWN_TIME(name, parameters, arguments)                                                  \
  OFF_GPU (name, parameters, arguments, UNKNOWN)                                                   \
  OFF_GPU (name##_ptsz, parameters, arguments, UNKNOWN)

UNKNOWN_TIME (cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data),
              (stream, function, data))
UNKNOWN_TIME (cuLaunchHostFunc_v2,
              (CUstream stream, CUhostFn function, void *data, unsigned int mode),
              (stream, function, data, mode))
UNKNOWN_TIME (cuStreamAddCallback,
              (CUstream stream, CUstreamCallback function, void *data, unsigned int flags),
              (stream, function, data, flags))
UNKNOWN_TIME (cuWaitExternalSemaphoresAsync,
              (const CUexternalSemaphore *semaphores,
               const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int count,
               CUstream stream),
              (semaphores, params, count, stream))

#define WAITS_FOR_VALUE(name, type)                                                                \
  UNKNOWN_TIME (name, (CUstream stream, CUdeviceptr address, type value, unsigned int flags),      \
                (stream, address, value, flags))

WAITS_FOR_VALUE (cuStreamWaitValue32, cuuint32_t)
WAITS_FOR_VALUE (cuStreamWaitValue32_v2, cuuint32_t)
WAITS_FOR_VALUE (cuStreamWaitValue64, cuuint64_t)
WAITS_FOR_VALUE (cuStreamWaitValue64_v2, cuuint64_t)

#define BATCH                                                                                      \
  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params, unsigned int flags)

UNKNOWN_TIME (cuStreamBatchMemOp, BATCH, (stream, count, params, flags))
UNKNOWN_TIME (cuStreamBatchMemOp_v2, BATCH, (stream, count, params, flags))

/* Events of other processes. An event of this process stands for work that is charged by
   itself.  */
CUresult
vcuda_cuIpcOpenEventHandle (CUevent *event, CUipcEventHandle handle)
{
  CUresult rc = real.cuIpcOpenEventHandle (event, handle);
  if (rc != CUDA_SUCCESS)
    return rc;
  vcuda_map_put (&(struct vcuda_allocation){
      .key = VCUDA_KEY (VCUDA_FOREIGN_EVENT, *event), .gpu = -1, .owner = VCUDA_OF_DEVICE });
  __atomic_store_n (&foreign_events, true, __ATOMIC_RELAXED);
  return rc;
}

void
vcuda_off_gpu_event (CUevent event)
{
  struct vcuda_allocation entry;
  if (__atomic_load_n (&foreign_events, __ATOMIC_RELAXED)
      && vcuda_map_find (VCUDA_KEY (VCUDA_FOREIGN_EVENT, event), &entry))
    queued (UNKNOWN);
}

#define DESTROYS(name)                                                                             \
  CUresult vcuda_##name (CUevent event)                                                            \
  {                                                                                                \
    struct vcuda_allocation entry;                                                                 \
    if (__atomic_load_n (&foreign_events, __ATOMIC_RELAXED))                                       \
      vcuda_map_take (VCUDA_KEY (VCUDA_FOREIGN_EVENT, event), &entry);                             \
    return real.name (event);                                                                      \
  }

DESTROYS (cuEventDestroy)
DESTROYS (cuEventDestroy_v2)

#define WAITS_FOR_EVENT(name)                                                                      \
  CUresult vcuda_##name (CUstream stream, CUevent event, unsigned int flags)                       \
  {                                                                                                \
    vcuda_off_gpu_event (event);                                                                   \
    return real.name (stream, event, flags);                                                       \
  }

WAITS_FOR_EVENT (cuStreamWaitEvent)
WAITS_FOR_EVENT (cuStreamWaitEvent_ptsz)
