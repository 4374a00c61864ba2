/* Launching kernels.  */

#include "graph/graph.h"
#include "stream/side_work.h"
#include "stream/streams.h"

CUresult
softgpu_launch (CUstream stream, uint64_t duration_ns)
{
  CUcontext context = softgpu_stream_context (stream);
  REQUIRE (context,
           default_stream (stream) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE);
  struct device *device = &driver.device[context->device];
  struct attachment *tie = &driver.tie;
  softgpu_side_wait (stream, context->device);
  for (;;)
    {
      softgpu_lock (tie);
      uint64_t *target = &device->launch_target[device->launches % LAUNCHES_OUTSTANDING];
      softgpu_advance (tie->state, device->gpu, softgpu_now ());
      if (softgpu_served (tie, device->gpu, *target))
        {
          *target = softgpu_submit (tie, device->gpu, duration_ns);
          device->launches++;
          if (!default_stream (stream))
            stream->target_ns = *target;
          softgpu_unlock (tie);
          return CUDA_SUCCESS;
        }
      uint64_t oldest = *target;
      softgpu_unlock (tie);
      softgpu_wait (tie, device->gpu, oldest);
    }
}

static CUresult
launch (CUfunction function, const unsigned grid[3], const unsigned block[3], unsigned shared,
        CUstream stream, void **params, void **extra)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (function_valid (function), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (softgpu_shape_fits (grid, block, shared), CUDA_ERROR_INVALID_VALUE);
  uint64_t time_ns;
  CUresult rc = softgpu_kernel_time (function, params, extra, &time_ns);
  if (rc == CUDA_SUCCESS && softgpu_captures)
    {
      if (softgpu_capturing (stream))
        return softgpu_capture_kernel (stream, &(CUDA_KERNEL_NODE_PARAMS){ .func = function,
                                                                           .gridDimX = grid[0],
                                                                           .gridDimY = grid[1],
                                                                           .gridDimZ = grid[2],
                                                                           .blockDimX = block[0],
                                                                           .blockDimY = block[1],
                                                                           .blockDimZ = block[2],
                                                                           .sharedMemBytes = shared,
                                                                           .kernelParams = params,
                                                                           .extra = extra });
      rc = softgpu_check_implicit (stream);
    }
  return rc == CUDA_SUCCESS ? softgpu_launch (stream, time_ns) : rc;
}

CUresult
cuLaunchKernel (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
  return launch (f, (unsigned[]){ gridDimX, gridDimY, gridDimZ },
                 (unsigned[]){ blockDimX, blockDimY, blockDimZ }, sharedMemBytes, hStream,
                 kernelParams, extra);
}

CUresult
cuLaunchKernelEx (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
  REQUIRE_DRIVER ();
  REQUIRE (config, CUDA_ERROR_INVALID_VALUE);
  return launch (f, (unsigned[]){ config->gridDimX, config->gridDimY, config->gridDimZ },
                 (unsigned[]){ config->blockDimX, config->blockDimY, config->blockDimZ },
                 config->sharedMemBytes, config->hStream, kernelParams, extra);
}

CUresult
cuLaunchCooperativeKernel (CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                           unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                           unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                           void **kernelParams)
{
  return cuLaunchKernel (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                         sharedMemBytes, hStream, kernelParams, NULL);
}
