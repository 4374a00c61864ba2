/* Functions that the workload's commands share.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

/* The functions of libcuda.so.1 that the workload calls, loaded at run time so that it starts in a
   container without a driver and can say so.  */
#define DRIVER_FUNCTIONS(F)                                                                        \
  F (cuInit, "cuInit", (unsigned) )                                                                \
  F (getErrorName, "cuGetErrorName", (CUresult, const char **) )                                   \
  F (deviceGetCount, "cuDeviceGetCount", (int *) )                                                 \
  F (deviceGet, "cuDeviceGet", (CUdevice *, int) )                                                 \
  F (deviceGetName, "cuDeviceGetName", (char *, int, CUdevice))                                    \
  F (deviceGetUuid, "cuDeviceGetUuid_v2", (CUuuid *, CUdevice))                                    \
  F (deviceGetAttribute, "cuDeviceGetAttribute", (int *, CUdevice_attribute, CUdevice))            \
  F (primaryRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))                           \
  F (primaryRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                                   \
  F (ctxGetCurrent, "cuCtxGetCurrent", (CUcontext *) )                                             \
  F (ctxSetCurrent, "cuCtxSetCurrent", (CUcontext))                                                \
  F (ctxSynchronize, "cuCtxSynchronize", (void) )                                                  \
  F (memGetInfo, "cuMemGetInfo_v2", (size_t *, size_t *) )                                         \
  F (memAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t) )                                          \
  F (memcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t) )                          \
  F (memcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t) )                                \
  F (memcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream))       \
  F (moduleLoadData, "cuModuleLoadData", (CUmodule *, const void *) )                              \
  F (moduleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *) )            \
  F (launchKernel, "cuLaunchKernel",                                                               \
     (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,  \
      void **, void **) )                                                                          \
  F (streamCreate, "cuStreamCreate", (CUstream *, unsigned) )                                      \
  F (streamSynchronize, "cuStreamSynchronize", (CUstream))                                         \
  F (streamBeginCapture, "cuStreamBeginCapture_v2", (CUstream, CUstreamCaptureMode))               \
  F (streamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph *) )                               \
  F (graphInstantiate, "cuGraphInstantiateWithFlags",                                              \
     (CUgraphExec *, CUgraph, unsigned long long) )                                                \
  F (graphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream))                                        \
  F (eventCreate, "cuEventCreate", (CUevent *, unsigned) )                                         \
  F (eventRecord, "cuEventRecord", (CUevent, CUstream))                                            \
  F (eventSynchronize, "cuEventSynchronize", (CUevent))

struct gpu_driver
{
#define MEMBER(name, symbol, parameters) CUresult (*name) parameters;
  DRIVER_FUNCTIONS (MEMBER)
#undef MEMBER
};

extern struct gpu_driver gpu;

enum
{
  MOST_IN_FLIGHT = 1024,
  MOST_STREAMS = 64,
  MOST_THREADS = 64,
};

/* The options of all commands.  */
struct options
{
  uint64_t ordinal;
  uint64_t chunk; /* that `alloc` asks for */
  double hold_s;  /* it holds what it got */
  uint64_t bytes; /* to hold meanwhile */
  double seconds;
  uint64_t kernel_us;
  uint64_t first_us;     /* of each thread's first kernel; 0: as the others */
  uint64_t depth;        /* submissions in flight; 0: wait for each */
  uint64_t streams;      /* non-blocking ones, in turn; 0: the default stream */
  uint64_t kernels;      /* of the graph that a submission launches; 0: it launches one kernel */
  uint64_t blocks;       /* of a kernel; 0: as many as fill the GPU */
  uint64_t threads;      /* that each do all this */
  uint64_t gap_us;       /* on the host, after each wait */
  uint64_t every_ms;     /* a submission is due so often, and waited for; 0: at once */
  uint64_t copy_bytes;   /* from the host, on another stream, beside each submission */
  uint64_t cell_kernels; /* of a notebook's cell, each waited for */
  uint64_t cells;        /* of a notebook; 0: as many as the seconds allow */
  const char *wait_file; /* the load begins when it is there */
};

/* Ends the program with STATUS and one line, as printf formats it.  */
#define FAIL(status, ...) (fprintf (stderr, "vcuda-workload: " __VA_ARGS__), exit (status))

/* Loads the driver and initialises it; ends the program with one line when that fails.  */
void start_driver (void);

/* Makes ORDINAL's primary context current, and returns the device.  */
CUdevice use_device (uint64_t ordinal);

/* Ends the program with one line unless RC is success.  */
void must (CUresult rc, const char *what);

const char *error_name (CUresult rc);

/* CLOCK_MONOTONIC in seconds.  */
double seconds_now (void);

void sleep_for (double seconds);

/* COUNT zeroed entries of BYTES; ends the program with one line where there is no memory for them.
   OPTION, HINT: what to change then.  */
void *must_allocate (uint64_t count, size_t bytes, const char *option, const char *hint);

/* Each command prints one line of JSON and returns the exit status.  */
int print_info (const struct options *options);
int allocate_all (const struct options *options);
int hold (const struct options *options);
int keep_busy (const struct options *options);
/* Prints a line each `every_ms`, when it has worked with its `bytes`. Returns 1 once they are not
   what was written there.  */
int keep_notebook (const struct options *options);
/* WORDS: the steps for the process PID, one after the other, and NULL.  */
int checkpoint (int pid, char **words);
