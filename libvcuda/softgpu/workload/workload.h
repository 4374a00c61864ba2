/* Functions that the workload's commands share.  */

#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

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

/* Loads the driver and initialises it; ends the program with one line when that fails.  */
void start_driver (void);

/* Makes ORDINAL's primary context current.  */
void use_device (int ordinal);

/* Ends the program with one line unless RC is success.  */
void must (CUresult rc, const char *what);

const char *error_name (CUresult rc);

/* CLOCK_MONOTONIC in seconds.  */
double seconds_now (void);

void sleep_for (double seconds);

/* Each command prints one line of JSON and returns the exit status.  */
int say_info (void);
int allocate_all (int ordinal, uint64_t chunk, double hold_s);
int hold (int ordinal, uint64_t bytes, double seconds);
/* WORDS: the steps for the process PID, one after the other, and NULL.  */
int checkpoint (int pid, char **words);

#endif
