/* cuCtxSetLimit. Three limits of a context take device memory: the stack, for each thread that the
   GPU can run at a time; the buffer of printf; the heap of malloc in kernels. What exceeds the
   initial limit is charged when it is set; the initial limit is part of the charge of a context. A
   driver may allocate heap and buffer only with the first kernel that needs them.  */

#include <pthread.h>

#include "charge/alloc_map.h"
#include "charge/charge.h"
#include "context/forget.h"
#include "memory/reserve.h"
#include "pages/device.h"
#include "pages/pages.h"
#include "thread/in_driver.h"

#define KINDS 3

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The driver's limit before the first change on each GPU, plus 1; 0: not read yet.  */
static size_t initial[VCUDA_MAX_GPUS][KINDS];

/* -1: a limit that takes no memory which the driver reports.  */
static int
kind_of (CUlimit limit)
{
  switch (limit)
    {
    case CU_LIMIT_STACK_SIZE:
      return VCUDA_STACK;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return VCUDA_PRINTF_FIFO;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return VCUDA_MALLOC_HEAP;
    default:
      return -1;
    }
}

/* The number of the current GPU's threads that the limit applies to.  */
static uint64_t
threads_with (int kind)
{
  CUdevice device;
  int units = 0, each = 0;
  if (kind != VCUDA_STACK)
    return 1;
  if (real.cuCtxGetDevice (&device) != CUDA_SUCCESS
      || real.cuDeviceGetAttribute (&units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)
      || real.cuDeviceGetAttribute (&each, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                    device))
    return 0;
  return (uint64_t) units * (uint64_t) each;
}

/* One context's limit, with the mutex held.  */
struct limit
{
  CUlimit limit;
  int kind;
  size_t initial;
  uint64_t threads;
  struct vcuda_allocation held;
};

static bool
look_up (struct limit *limit, CUcontext context, int gpu)
{
  size_t actual;
  size_t *known = &initial[gpu][limit->kind - VCUDA_STACK];
  if (!*known)
    {
      if (real.cuCtxGetLimit (&actual, limit->limit) != CUDA_SUCCESS)
        return false;
      *known = actual + 1;
    }
  limit->initial = *known - 1;
  limit->threads = threads_with (limit->kind);
  uint64_t key = VCUDA_KEY (limit->kind, context);
  if (!vcuda_map_find (key, &limit->held))
    limit->held = (struct vcuda_allocation){
      .key = key, .context = context, .gpu = (int8_t) gpu, .owner = VCUDA_OF_CONTEXT
    };
  return true;
}

static uint64_t
bytes_for (const struct limit *limit, size_t value)
{
  uint64_t bytes;
  if (value <= limit->initial)
    return 0;
  return __builtin_mul_overflow (value - limit->initial, limit->threads, &bytes) ? UINT64_MAX
                                                                                 : bytes;
}

/* LIMIT holds BYTES from now on. The map is changed before the slot: a process that lost its slot
   enters what is in the map.  */
static void
record (struct limit *limit, uint64_t bytes)
{
  struct vcuda_allocation before;
  limit->held.bytes = bytes;
  vcuda_map_take (limit->held.key, &before);
  if (bytes)
    vcuda_map_put (&limit->held);
}

/* A driver rounds the value. What that takes above the RESERVED bytes must fit as well, or the
   limit is set to WAS again. Returns what the limit holds.  */
static uint64_t
settle (struct limit *limit, size_t was, uint64_t reserved, CUresult *rc)
{
  size_t actual;
  uint64_t before = limit->held.bytes;
  if (*rc != CUDA_SUCCESS)
    return before;
  if (real.cuCtxGetLimit (&actual, limit->limit) != CUDA_SUCCESS)
    return reserved;
  uint64_t now = bytes_for (limit, actual);
  if (now <= reserved || vcuda_reserve (limit->held.gpu, now - reserved) == CUDA_SUCCESS)
    return now;
  VCUDA_CALL_DRIVER (real.cuCtxSetLimit (limit->limit, was));
  *rc = CUDA_ERROR_OUT_OF_MEMORY;
  return before;
}

static CUresult
set (struct limit *limit, size_t value)
{
  int gpu = limit->held.gpu;
  uint64_t before = limit->held.bytes, wanted = bytes_for (limit, value);
  uint64_t reserved = wanted > before ? wanted : before;
  size_t was;
  CUresult rc = real.cuCtxGetLimit (&was, limit->limit);
  if (rc == CUDA_SUCCESS && reserved > before)
    rc = vcuda_reserve (gpu, reserved - before);
  if (rc != CUDA_SUCCESS)
    return rc;
  rc = VCUDA_CALL_DRIVER (real.cuCtxSetLimit (limit->limit, value));
  uint64_t now = settle (limit, was, reserved, &rc);
  record (limit, now);
  if (now < reserved)
    vcuda_give_back (gpu, reserved - now);
  return rc;
}

CUresult
vcuda_cuCtxSetLimit (CUlimit limit, size_t value)
{
  int gpu;
  CUcontext context;
  struct limit own = { .limit = limit, .kind = kind_of (limit) };
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  if (vcuda_thread ()->in_driver || own.kind < 0
      || vcuda_gpu_current (&gpu, &context) != CUDA_SUCCESS)
    return real.cuCtxSetLimit (limit, value);
  size_t actual;
  if (gpu < 0) /* no share of this GPU */
    return real.cuCtxGetLimit (&actual, limit) == CUDA_SUCCESS && value > actual
               ? CUDA_ERROR_OUT_OF_MEMORY
               : real.cuCtxSetLimit (limit, value);
  pthread_mutex_lock (&mutex);
  CUresult rc
      = look_up (&own, context, gpu) ? set (&own, value) : real.cuCtxSetLimit (limit, value);
  pthread_mutex_unlock (&mutex);
  return rc;
}

void
vcuda_limits_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
}
