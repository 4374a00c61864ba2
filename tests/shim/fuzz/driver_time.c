/* The driver's kernels, sets and events, and the virtual clock.  */

#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>

#include "fuzz.h"
#include "pages/pages.h"

uint64_t driver_kernel_ns;
uint64_t clock_ns = 1000000000;
unsigned clock_sleeps;
void (*fuzz_meanwhile) (void);

static uint64_t gpu_free_at;

/* On the heap, so that a use after the context has ended is found.  */
struct CUevent_st
{
  uint64_t moment;
  struct CUevent_st *next;
};
static struct CUevent_st *events;

int
fuzz_clock_gettime (clockid_t which, struct timespec *now)
{
  (void) which;
  *now = (struct timespec){ (time_t) (clock_ns / 1000000000), (long) (clock_ns % 1000000000) };
  return 0;
}

int
fuzz_clock_nanosleep (clockid_t which, int flags, const struct timespec *span,
                      struct timespec *left)
{
  (void) which, (void) flags, (void) left;
  MUST_HOLD (span->tv_sec >= 0 && span->tv_nsec >= 0 && span->tv_nsec < 1000000000);
  clock_ns += (uint64_t) span->tv_sec * 1000000000 + (uint64_t) span->tv_nsec;
  clock_sleeps++;
  fuzz_meanwhile ();
  return 0;
}

int
fuzz_usleep (unsigned microseconds)
{
  clock_ns += microseconds * 1000ull;
  clock_sleeps++;
  return 0;
}

/* A wait on a futex takes its whole timeout: no keeper wakes it. Whatever the page says, its host
   has resumed the container by then.  */
long
fuzz_syscall (long number, ...)
{
  va_list arguments;
  va_start (arguments, number);
  long first = va_arg (arguments, long), second = va_arg (arguments, long);
  (void) va_arg (arguments, long);
  const struct timespec *timeout = va_arg (arguments, const struct timespec *);
  va_end (arguments);
  if (number == SYS_fstat)
    return fstat ((int) first, (struct stat *) second);
  MUST_HOLD (number == SYS_futex);
  if ((int) second == FUTEX_WAIT)
    fuzz_clock_nanosleep (CLOCK_MONOTONIC, 0, timeout, NULL);
  if (vcuda_pages.limits && first == (long) &vcuda_pages.limits->suspended)
    limits->suspended = VCUDA_AWAKE;
  return 0;
}

/* The shim's messages: each is a whole line on standard error.  */
ssize_t
fuzz_write (int fd, const void *line, size_t length)
{
  MUST_HOLD (fd == 2 && length && memchr (line, '\n', length) == (const char *) line + length - 1);
  return (ssize_t) length;
}

static CUresult
work (void)
{
  fuzz_meanwhile ();
  gpu_free_at = (gpu_free_at > clock_ns ? gpu_free_at : clock_ns) + driver_kernel_ns;
  return CUDA_SUCCESS;
}

static CUresult
launch_kernel (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
               unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra)
{
  (void) gx, (void) gy, (void) gz, (void) bx, (void) by, (void) bz, (void) shared, (void) stream;
  (void) parameters, (void) extra;
  return f ? work () : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult
memset_async (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
  (void) to, (void) value, (void) bytes, (void) stream;
  return work ();
}

static CUresult
synchronize (void)
{
  clock_ns = gpu_free_at > clock_ns ? gpu_free_at : clock_ns;
  fuzz_meanwhile ();
  return CUDA_SUCCESS;
}

static CUresult
is_capturing (CUstream stream, CUstreamCaptureStatus *status)
{
  (void) stream;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

static CUresult
exchange_mode (CUstreamCaptureMode *mode)
{
  *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return CUDA_SUCCESS;
}

static CUresult
event_create (CUevent *event, unsigned flags)
{
  (void) flags;
  *event = calloc (1, sizeof **event);
  (*event)->next = events;
  events = *event;
  return CUDA_SUCCESS;
}

static CUresult
event_record (CUevent event, CUstream stream)
{
  (void) stream;
  event->moment = gpu_free_at > clock_ns ? gpu_free_at : clock_ns;
  return CUDA_SUCCESS;
}

static CUresult
event_query (CUevent event)
{
  return event->moment <= clock_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult
event_elapsed (float *ms, CUevent start, CUevent end)
{
  *ms = (float) ((double) end->moment - (double) start->moment) / 1e6f;
  return CUDA_SUCCESS;
}

void
driver_forget_events (void)
{
  synchronize ();
  while (events)
    {
      struct CUevent_st *next = events->next;
      free (events);
      events = next;
    }
}

void
driver_install_time (void)
{
  real.cuLaunchKernel = launch_kernel;
  real.cuMemsetD8Async = memset_async;
  real.cuCtxSynchronize = synchronize;
  real.cuStreamIsCapturing = is_capturing;
  real.cuThreadExchangeStreamCaptureMode = exchange_mode;
  real.cuEventCreate = event_create;
  real.cuEventRecord = event_record;
  real.cuEventQuery = event_query;
  real.cuEventElapsedTime_v2 = event_elapsed;
}
