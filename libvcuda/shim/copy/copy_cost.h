/* Copies and sets that take GPU time; metered if the host enables it (limits: meter_copies).

   The expected cost is looked up by the kind and the power of two of the bytes. Copies from and to
   host memory are not among them: a copy engine does them at the speed of the bus.  */

#pragma once

#include "compute/metered_call.h"
#include "thread/stream.h"

enum vcuda_copy_kind
{
  VCUDA_COPY_ROW,
  VCUDA_COPY_BOX,
  VCUDA_COPY_BATCH,
  VCUDA_SET_ROW,
  VCUDA_SET_BOX,
  VCUDA_COPY_KINDS
};

/* Only the addresses matter: each is the key of one kind and size.  */
extern const char vcuda_copy_keys[VCUDA_COPY_KINDS][65] __attribute__ ((visibility ("hidden")));

/* Read at each call: what the host writes applies to the next copy. False without the page: the
   driver's entry then refuses the call.  */
static inline bool
vcuda_copies_metered (void)
{
  const struct vcuda_limits *limits = __atomic_load_n (&vcuda_pages.limits, __ATOMIC_ACQUIRE);
  return limits && __atomic_load_n (&limits->meter_copies, __ATOMIC_RELAXED);
}

static inline const void *
vcuda_copy_key (enum vcuda_copy_kind kind, uint64_t bytes)
{
  return &vcuda_copy_keys[kind]
                         [__builtin_expect (bytes != 0, 1) ? 64 - __builtin_clzll (bytes) : 0];
}

/* One end of a copy; an array has ADDRESS 0.  */
struct vcuda_end
{
  CUmemorytype type;
  CUdeviceptr address;
};

#define VCUDA_ADDRESS(end_address)                                                                 \
  (struct vcuda_end) { CU_MEMORYTYPE_UNIFIED, end_address }

/* The key of a copy of BYTES; NULL if it isn't within one GPU's memory, or if the caller is the
   driver, which would have to be asked.  */
const void *vcuda_copy_within (enum vcuda_copy_kind kind, struct vcuda_end to,
                               struct vcuda_end from, uint64_t bytes);

/* False for a copy between two GPUs, which takes the bus between them. Address 0 is an array, on
   the GPU of the context that copies it.  */
bool vcuda_copy_on_one_gpu (CUdeviceptr to, CUdeviceptr from);

/* The key of a copy between two device addresses; with one GPU the driver need not be asked.  */
static inline const void *
vcuda_copy_on_device (CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
  if (vcuda_gpu_count () > 1 && !vcuda_copy_on_one_gpu (to, from))
    return NULL;
  return vcuda_copy_key (VCUDA_COPY_ROW, bytes);
}

/* The policy function of one export; KEY is NULL for a copy that is passed on. A copy that is not
   metered jumps to the driver with the caller's arguments in place, so the path that needs a stack
   frame is a function of its own.  */
#define VCUDA_COPY(name, parameters, arguments, key, copy_stream)                                  \
  static __attribute__ ((noinline)) CUresult name##_slow_path parameters                           \
  {                                                                                                \
    VCUDA_METER (key, copy_stream, real.name arguments);                                           \
  }                                                                                                \
  static __attribute__ ((noinline)) CUresult name##_metered parameters                             \
  {                                                                                                \
    struct vcuda_thread *thread = vcuda_thread ();                                                 \
    const void *copy_key = key;                                                                    \
    if (!copy_key)                                                                                 \
      return real.name arguments;                                                                  \
    if (!vcuda_launch_at_once_of (thread, copy_key, copy_stream))                                  \
      return name##_slow_path arguments;                                                           \
    return VCUDA_CALL_DRIVER_OF (thread, real.name arguments);                                     \
  }                                                                                                \
  CUresult vcuda_##name parameters                                                                 \
  {                                                                                                \
    if (!vcuda_copies_metered ())                                                                  \
      return real.name arguments;                                                                  \
    return name##_metered arguments;                                                               \
  }

/* The same for a call without a stream, and its form with the thread's own as the default one.  */
#define VCUDA_PLAIN_COPY(name, parameters, arguments, key)                                         \
  VCUDA_COPY (name, parameters, arguments, key, NULL)                                              \
  VCUDA_COPY (name##_ptds, parameters, arguments, key, CU_STREAM_PER_THREAD)

/* The same for a call with STREAM.  */
#define VCUDA_QUEUED_COPY(name, parameters, arguments, key)                                        \
  VCUDA_COPY (name, parameters, arguments, key, stream)                                            \
  VCUDA_COPY (name##_ptsz, parameters, arguments, key, vcuda_per_thread (stream))
