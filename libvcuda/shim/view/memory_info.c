/* cuMemGetInfo and cuDeviceTotalMem: the container's view of its memory.  */

#include <time.h>

#include "charge/charge.h"
#include "memory/managed.h"
#include "pages/device.h"
#include "pages/pages.h"
#include "pages/slot.h"
#include "thread/current_context.h"

static uint64_t
smaller (uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

/* The driver's answer for each GPU, valid for one tick of the kernel's coarse clock (some
   milliseconds) and while the container holds as much as it held then.  */
static struct sample
{
  uint64_t tick, held, free_bytes, total;
} samples[VCUDA_MAX_GPUS];

/* Even that clock costs more than all the rest, and rdtsc more than the clock. So a thread that
   asks again and again within a tick reads the clock less and less often, but at least once in this
   many calls.  */
#define MOST_UNCLOCKED 63

static uint64_t
tick_now (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC_COARSE, &now);
  return (uint64_t) now.tv_sec * 1000000000u + (uint64_t) now.tv_nsec;
}

/* Converts the driver's memory into the container's view. The driver's free memory counts too: the
   GPU may have less left than the share promises, because contexts take some of it.  */
static inline void
show_share (uint64_t limit, uint64_t held, uint64_t driver_free, uint64_t driver_total,
            size_t *free_bytes, size_t *total)
{
  limit = smaller (limit, driver_total);
  *free_bytes = smaller (held < limit ? limit - held : 0, driver_free);
  *total = limit;
}

/* Answers from the last sample, and saves the answer for this thread. False: the container holds
   another amount than it did then.  */
static bool
answer_from_sample (int gpu, size_t *free_bytes, size_t *total)
{
  const struct sample *sample = &samples[gpu];
  uint64_t held = vcuda_held_bytes (gpu), limit = vcuda_memory_limit (gpu);
  if (__atomic_load_n (&sample->held, __ATOMIC_RELAXED) != held)
    return false;
  show_share (limit, held, __atomic_load_n (&sample->free_bytes, __ATOMIC_RELAXED),
              __atomic_load_n (&sample->total, __ATOMIC_RELAXED), free_bytes, total);
  vcuda_thread ()->view = (struct vcuda_view){
    .slots_used_at = &vcuda_pages.usage->slots_used,
    .held_at = &vcuda_pages.usage->slot[0].held_bytes[gpu],
    .limit_at = &vcuda_pages.limits->gpu[gpu].memory_bytes,
    .held = held,
    .limit = limit,
    .free_bytes = *free_bytes,
    .total = *total,
  };
  return true;
}

/* Takes a new sample of the driver's memory and answers from it.  */
static CUresult
answer_anew (int gpu, size_t *free_bytes, size_t *total)
{
  vcuda_slots_reclaim_sometimes ();
  uint64_t held = gpu < 0 ? 0 : vcuda_held_bytes (gpu);
  CUresult rc = real.cuMemGetInfo_v2 (free_bytes, total);
  if (rc != CUDA_SUCCESS)
    return rc;
  if (gpu >= 0)
    {
      __atomic_store_n (&samples[gpu].free_bytes, *free_bytes, __ATOMIC_RELAXED);
      __atomic_store_n (&samples[gpu].total, *total, __ATOMIC_RELAXED);
      __atomic_store_n (&samples[gpu].held, held, __ATOMIC_RELAXED);
      __atomic_store_n (&samples[gpu].tick, tick_now (), __ATOMIC_RELEASE);
      held = vcuda_held_bytes (gpu);
    }
  uint64_t limit = vcuda_memory_limit (gpu);
  show_share (limit, held, *free_bytes, *total, free_bytes, total);
  return CUDA_SUCCESS;
}

static __attribute__ ((noinline)) CUresult
get_info_slow_path (size_t *free_bytes, size_t *total)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUcontext context;
  int gpu = -1;
  if (!free_bytes || !total || vcuda_gpu_current (&gpu, &context) != CUDA_SUCCESS)
    return real.cuMemGetInfo_v2 (free_bytes, total); /* the driver has an error for it */
  if (vcuda_managed (gpu))
    {
      /* The driver's free memory is no limit: it makes room by moving pages out.  */
      vcuda_slots_reclaim_sometimes ();
      show_share (vcuda_memory_limit (gpu), vcuda_held_bytes (gpu), UINT64_MAX, UINT64_MAX,
                  free_bytes, total);
      return CUDA_SUCCESS;
    }
  struct vcuda_current *current = &vcuda_thread ()->current;
  /* A signal handler that interrupts the change must not use the view.  */
  current->unclocked = 0;
  __atomic_signal_fence (__ATOMIC_SEQ_CST);
  if (gpu >= 0 && __atomic_load_n (&samples[gpu].tick, __ATOMIC_ACQUIRE) == tick_now ()
      && answer_from_sample (gpu, free_bytes, total))
    {
      /* Fewer than the thread's calls within this tick so far.  */
      unsigned run = 2u * current->unclocked_run + 1;
      current->unclocked_run = (uint8_t) (run < MOST_UNCLOCKED ? run : MOST_UNCLOCKED);
      __atomic_signal_fence (__ATOMIC_SEQ_CST);
      current->unclocked = current->unclocked_run;
      return CUDA_SUCCESS;
    }
  current->unclocked_run = 0;
  return answer_anew (gpu, free_bytes, total);
}

static inline CUresult
show_view (struct vcuda_thread *thread, size_t *free_bytes, size_t *total)
{
  *free_bytes = thread->view.free_bytes;
  *total = thread->view.total;
  thread->current.unclocked--;
  return CUDA_SUCCESS;
}

/* vcuda_cuMemGetInfo_v2 for a container of which several processes have used GPUs.  */
static __attribute__ ((noinline)) CUresult
get_info_of_many (size_t *free_bytes, size_t *total)
{
  struct vcuda_thread *thread = vcuda_thread ();
  int gpu = thread->current.gpu;
  if (thread->view.held != vcuda_held_bytes (gpu) || thread->view.limit != vcuda_memory_limit (gpu))
    return get_info_slow_path (free_bytes, total);
  return show_view (thread, free_bytes, total);
}

CUresult
vcuda_cuMemGetInfo_v2 (size_t *free_bytes, size_t *total)
{
  struct vcuda_thread *thread = vcuda_thread ();
  const struct vcuda_current *current = &thread->current;
  const struct vcuda_view *view = &thread->view;
  if (__builtin_expect (!current->unclocked, 0)
      || current->epoch != __atomic_load_n (&vcuda_current_epoch, __ATOMIC_ACQUIRE) || !free_bytes
      || !total)
    return get_info_slow_path (free_bytes, total);
  if (__builtin_expect (__atomic_load_n (view->slots_used_at, __ATOMIC_SEQ_CST) != 1, 0))
    return get_info_of_many (free_bytes, total);
  if (__builtin_expect (__atomic_load_n (view->held_at, __ATOMIC_SEQ_CST) != view->held, 0)
      || __builtin_expect (__atomic_load_n (view->limit_at, __ATOMIC_RELAXED) != view->limit, 0))
    return get_info_slow_path (free_bytes, total);
  return show_view (thread, free_bytes, total);
}

/* Exported as an alias: entries.S's jump would take a tenth of the call.  */
CUresult cuMemGetInfo_v2 (size_t *free_bytes, size_t *total)
    __attribute__ ((alias ("vcuda_cuMemGetInfo_v2"), visibility ("default")));

/* The first version counts in 32 bits.  */
CUresult
vcuda_cuMemGetInfo (unsigned int *free_bytes, unsigned int *total_bytes)
{
  size_t free_now, total;
  CUresult rc = vcuda_cuMemGetInfo_v2 (&free_now, &total);
  if (rc != CUDA_SUCCESS)
    return rc;
  if (!free_bytes || !total_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  *free_bytes = (unsigned int) smaller (free_now, UINT32_MAX);
  *total_bytes = (unsigned int) smaller (total, UINT32_MAX);
  return CUDA_SUCCESS;
}

CUresult
vcuda_cuDeviceTotalMem_v2 (size_t *bytes, CUdevice device)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = real.cuDeviceTotalMem_v2 (bytes, device);
  if (rc == CUDA_SUCCESS)
    *bytes = smaller (*bytes, vcuda_memory_limit (vcuda_gpu_of_device (device)));
  return rc;
}

CUresult
vcuda_cuDeviceTotalMem (unsigned int *bytes, CUdevice device)
{
  size_t total;
  CUresult rc = vcuda_cuDeviceTotalMem_v2 (&total, device);
  if (rc == CUDA_SUCCESS && !bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (rc == CUDA_SUCCESS)
    *bytes = (unsigned int) smaller (total, UINT32_MAX);
  return rc;
}
