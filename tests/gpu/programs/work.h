/* A kernel of so many steps of work, and how a program of this folder prepares and launches it.

   A step is work, not time: a kernel that the GPU sets aside for another process takes longer and
   does no more, whatever a clock on the device says.  */

#pragma once

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif
#include <cuda.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_THREADS 32

/* A chain of multiplications, each waiting for the one before; the store keeps the compiler from
   dropping them. To the software GPU a step is a nanosecond.  */
static const char image[]
    = ".version 7.0\n"
      ".target sm_50\n"
      ".address_size 64\n"
      "//softgpu entry=work time_ns=param:0\n"
      ".visible .global .align 8 .u64 sink;\n"
      ".visible .entry work(.param .u64 steps)\n"
      "{\n"
      "  .reg .u64 %left, %value;\n"
      "  .reg .pred %more, %never;\n"
      "  ld.param.u64 %left, [steps];\n"
      "  mov.u64 %value, %left;\n"
      "again:\n"
      "  mad.lo.u64 %value, %value, 6364136223846793005, 1442695040888963407;\n"
      "  sub.u64 %left, %left, 1;\n"
      "  setp.ne.u64 %more, %left, 0;\n"
      "  @%more bra again;\n"
      "  setp.eq.u64 %never, %value, 0;\n"
      "  @%never st.global.u64 [sink], %value;\n"
      "  ret;\n"
      "}\n";

static CUfunction work;
static CUstream stream;
static uint64_t steps;
static unsigned blocks;
static int multiprocessors;

static void
must (CUresult rc, const char *what)
{
  if (rc == CUDA_SUCCESS)
    return;
  const char *name = NULL;
  cuGetErrorName (rc, &name);
  fprintf (stderr, "%s: %s: %s; run it where a GPU is free\n", program_invocation_short_name, what,
           name ? name : "?");
  exit (1);
}

#define MUST(call) must (call, #call)

static double
now (void)
{
  struct timespec moment;
  clock_gettime (CLOCK_MONOTONIC, &moment);
  return (double) moment.tv_sec + (double) moment.tv_nsec / 1e9;
}

static void
launch_of (uint64_t steps_of_it, unsigned blocks_of_it, unsigned threads, CUstream on)
{
  void *params[] = { &steps_of_it };
  MUST (cuLaunchKernel (work, blocks_of_it, 1, 1, threads, 1, 1, 0, on, params, NULL));
}

static void
launch (void)
{
  launch_of (steps, blocks, BLOCK_THREADS, stream);
}

static CUevent
new_event (unsigned flags)
{
  CUevent event;
  MUST (cuEventCreate (&event, flags));
  return event;
}

static void
prepare (int device_blocks)
{
  CUdevice device;
  CUcontext context;
  CUmodule module;
  MUST (cuInit (0));
  MUST (cuDeviceGet (&device, 0));
  MUST (cuDevicePrimaryCtxRetain (&context, device));
  MUST (cuCtxSetCurrent (context));
  MUST (cuDeviceGetAttribute (&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  MUST (cuModuleLoadData (&module, image));
  MUST (cuModuleGetFunction (&work, module, "work"));
  MUST (cuStreamCreate (&stream, CU_STREAM_NON_BLOCKING));
  blocks = device_blocks ? (unsigned) device_blocks : (unsigned) multiprocessors;
}

static void
sleep_for (double seconds)
{
  nanosleep (&(struct timespec) { .tv_nsec = (long) (seconds * 1e9) }, NULL);
}

static void
print_line (const char *line)
{
  puts (line);
  fflush (stdout);
}

/* Once the file is there; "-": at once.  */
static void
wait_for (const char *start_file)
{
  print_line ("{\"ready\": true}");
  while (strcmp (start_file, "-") != 0 && access (start_file, F_OK) != 0)
    sleep_for (0.002);
}
