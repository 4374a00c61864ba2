/* libFuzzer's target: any bytes in `limits` and `usage`, before and in the middle of calls.
   Whatever they are, no call crashes, none but a launch takes longer than PATIENCE_NS, nothing
   above the limit is granted, and where the slots were left alone the sum of what was granted is
   within the limit.

   An input is two heads, then operations, one byte each with what it needs behind it. Every input
   runs in a thread of its own, so that what a thread leaves at its end is part of it.  */

#include <pthread.h>
#include <stdio.h>

/* For its lock on being mapped once.  */
#include "../../../libvcuda/shim/pages/pages.c"

#include "charge/charge.h"
#include "compute/turn.h"
#include "fuzz.h"
#include "pages/decisions.h"
#include "pages/slot.h"
#include "pages/slot_file.h"
#include "thread/current_context.h"

/* A refusal waits for a second, a look-up of a GPU for a tenth.  */
#define PATIENCE_NS 1200000000ull
#define NVML_DEVICE ((nvmlDevice_t) 1)

static bool slots_changed;
static uint64_t most_allowed; /* the largest limit that the page held during a call */
#define MOST_CONTEXTS 4
static CUcontext contexts[MOST_CONTEXTS];
static int neighbour; /* a descriptor of other processes: the locks of their slots */

static void
allow (void)
{
  uint64_t now = limits->gpu[0].memory_bytes;
  most_allowed = now > most_allowed ? now : most_allowed;
}

/* Whether 8 bytes at AT touch those from BEGIN to END.  */
static bool
is_in (size_t at, size_t begin, size_t end)
{
  return at < end && at + 8 > begin;
}

static void
overwrite_usage (void)
{
  static const uint16_t starts[]
      = { 0, offsetof (struct vcuda_usage, gpu), offsetof (struct vcuda_usage, slot),
          offsetof (struct vcuda_usage, slot[1]) };
  unsigned where = (unsigned) take (1);
  /* Anywhere, or near the beginning of the head, of a GPU, of this process's slot or the next.  */
  size_t at = where & 4 ? take (3) : starts[where & 3] + take (1);
  at = at / 4 * 4 % (sizeof *usage - 8);
  slots_changed |= at + 8 > offsetof (struct vcuda_usage, slot)
                   || is_in (at, offsetof (struct vcuda_usage, slots_used),
                             offsetof (struct vcuda_usage, newer_symbols))
                   || is_in (at, offsetof (struct vcuda_usage, off_gpu),
                             offsetof (struct vcuda_usage, reserved));
  uint64_t value = number ();
  memcpy ((char *) usage + at, &value, where & 8 ? 4 : 8);
}

static void
overwrite_limits (void)
{
  unsigned where = (unsigned) take (1);
  size_t at = where & 1 ? take (2) : offsetof (struct vcuda_limits, gpu) + take (1);
  uint64_t value = number ();
  memcpy ((char *) limits + at % (sizeof *limits - 8), &value, where & 2 ? 4 : 8);
  allow ();
}

/* What is overwritten at the next moment that the shim sleeps or is in the driver: 0 nothing.  */
static unsigned next_scribbles;

static void
meanwhile (void)
{
  for (; next_scribbles; next_scribbles >>= 2)
    if (next_scribbles & 1)
      overwrite_usage ();
    else if (next_scribbles & 2)
      overwrite_limits ();
  /* A rate of 0 or a debt of years is a wait of years; then the host corrects it.  */
  if (clock_sleeps > 2000)
    {
      limits->rate_until_ns = 0;
      limits->gpu[0].rate_ppm = 1000000;
      usage->gpu[0].balance_ns = 0;
    }
  MUST_HOLD (clock_sleeps < 8000);
}

static void
allocate (void)
{
  CUdeviceptr pointer;
  uint64_t bytes = number ();
  if (vcuda_cuMemAlloc_v2 (&pointer, bytes) != CUDA_SUCCESS)
    return;
  MUST_HOLD (bytes <= most_allowed);
  MUST_HOLD (slots_changed || driver_held <= most_allowed);
}

static void
look_at_memory (void)
{
  size_t free_now, total;
  if (vcuda_cuMemGetInfo_v2 (&free_now, &total) == CUDA_SUCCESS)
    MUST_HOLD (free_now <= total && total <= most_allowed);
  if (vcuda_cuDeviceTotalMem_v2 (&total, 0) == CUDA_SUCCESS)
    MUST_HOLD (total <= most_allowed);
}

static void
look_with_nvml (void)
{
  nvmlMemory_t memory;
  nvmlUtilization_t utilization;
  nvmlProcessInfo_t processes[VCUDA_MAX_PROCESSES];
  unsigned room = (unsigned) take (1), count = room;
  if (vcuda_nvmlDeviceGetMemoryInfo (NVML_DEVICE, &memory) == NVML_SUCCESS)
    MUST_HOLD (memory.used + memory.free == memory.total);
  if (vcuda_nvmlDeviceGetUtilizationRates (NVML_DEVICE, &utilization) == NVML_SUCCESS)
    MUST_HOLD (utilization.gpu <= 100 && utilization.memory <= 100);
  nvmlReturn_t rc = vcuda_nvmlDeviceGetComputeRunningProcesses_v3 (NVML_DEVICE, &count, processes);
  MUST_HOLD (rc != NVML_SUCCESS || count <= room);
}

static void
launch (void)
{
  CUfunction function = (CUfunction) (size_t) (take (1) % 8);
  driver_kernel_ns = take (4);
  vcuda_cuLaunchKernel (function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void
set_memory (void)
{
  driver_kernel_ns = take (4);
  vcuda_cuMemsetD8Async (1 << 20, 0, number (), NULL);
}

/* Creates a context, or destroys it. A program has few at a time; the count is in the page.  */
static void
begin_or_end_context (void)
{
  CUcontext *context = &contexts[take (1) % MOST_CONTEXTS];
  if (*context)
    MUST_HOLD (vcuda_cuCtxDestroy_v2 (*context) == CUDA_SUCCESS || !vcuda_ready ());
  if (*context || vcuda_cuCtxCreate_v2 (context, 0, 0) != CUDA_SUCCESS)
    *context = NULL;
}

static void
operate (unsigned operation)
{
  uint64_t began = clock_ns;
  bool quick = true;
  driver_gate (vcuda_readiness == VCUDA_READY);
  clock_sleeps = 0;
  most_allowed = 0;
  allow ();
  switch (operation % 13)
    {
    case 0:
      overwrite_usage ();
      break;
    case 1:
      overwrite_limits ();
      break;
    case 2:
      next_scribbles = (unsigned) take (1);
      break;
    case 3:
    case 4:
      allocate ();
      break;
    case 5:
      vcuda_cuMemFree_v2 (driver_pieces[take (1) % MOST_PIECES]);
      break;
    case 6:
      look_at_memory ();
      break;
    case 7:
      look_with_nvml ();
      break;
    case 8:
      quick = false;
      launch ();
      break;
    case 9:
      quick = false;
      vcuda_cuCtxSynchronize ();
      break;
    case 10:
      quick = false;
      set_memory ();
      break;
    case 11:
      quick = false;
      begin_or_end_context ();
      break;
    default:
      quick = false;
      vcuda_lock_byte (neighbour, (off_t) (VCUDA_USAGE_LOCK_BASE + take (1) % 4),
                       operation & 128 ? F_WRLCK : F_UNLCK);
      clock_ns += take (3) * 1000;
    }
  MUST_HOLD (!quick || clock_ns - began <= PATIENCE_NS);
}

static void *
run (void *ignored)
{
  /* The first thread of a process, or one that shares its word with others.  */
  vcuda_thread ()->thread_slot = input_left % 2 ? 1 : VCUDA_ASKING_THREADS + 1;
  for (unsigned i = 0; input_left && i < 4; i++)
    if (take (1) & 1)
      overwrite_usage ();
    else
      overwrite_limits ();
  slots_changed |= usage->slots_used != 0;
  while (input_left)
    operate ((unsigned) take (1));
  next_scribbles = 0;
  for (int i = 0; i < MOST_PIECES; i++)
    if (driver_pieces[i])
      vcuda_cuMemFree_v2 (driver_pieces[i]);
  for (int i = 0; i < MOST_CONTEXTS; i++)
    if (contexts[i])
      vcuda_cuCtxDestroy_v2 (contexts[i]);
  memset (contexts, 0, sizeof contexts);
  if (vcuda_ready () && !slots_changed)
    MUST_HOLD (vcuda_held_bytes (0) == 0);
  vcuda_cuCtxDestroy_v2 (DRIVER_CONTEXT);
  return ignored;
}

int
LLVMFuzzerInitialize (int *count, char ***arguments)
{
  (void) count, (void) arguments;
  host_open_pages ();
  driver_install ();
  fuzz_meanwhile = meanwhile;
  return 0;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  pthread_t thread;
  input = data;
  input_left = size;
  next_scribbles = 0;
  slots_changed = false;
  host_make_pages ();
  neighbour = open (VCUDA_GUEST_USAGE, O_RDWR | O_CLOEXEC);
  MUST_HOLD (!pthread_create (&thread, NULL, run, NULL) && !pthread_join (thread, NULL));
  close (neighbour);
  /* The state of a process that has not mapped its pages yet.  */
  vcuda_slot_forget ();
  vcuda_current_forget_all ();
  vcuda_turn_forget ();
  if (vcuda_readiness == VCUDA_READY)
    {
      munmap ((void *) vcuda_pages.limits, sizeof *limits);
      munmap (vcuda_pages.usage, sizeof *usage);
    }
  vcuda_pages = (struct vcuda_pages){ 0 };
  vcuda_readiness = VCUDA_UNKNOWN;
  driver_gate (false);
  claimed = 0;
  return 0;
}
