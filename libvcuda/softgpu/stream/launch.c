/* Launching kernels.  */

#include "graph/graph.h"
#include "stream/streams.h"

static CUresult
launch (CUfunction function, const unsigned grid[3], const unsigned block[3], unsigned shared,
        CUstream stream, void **params, void **extra)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (function_valid (function), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (softgpu_shape_fits (grid, block, shared), CUDA_ERROR_INVALID_VALUE);
  struct kernel_cost cost;
  REQUIRE_SUCCESS (softgpu_kernel_cost (function, grid, block, params, extra, &cost));
  if (softgpu_captures)
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
      REQUIRE_SUCCESS (softgpu_check_implicit (stream));
    }
  softgpu_take_submit_time (&driver.tie);
  const struct softgpu_command kernel = { .kind = SOFTGPU_KERNEL,
                                          .width = cost.width,
                                          .count = 1,
                                          .piece_ns = cost.time_ns,
                                          .left_ns = cost.time_ns };
  return softgpu_submit_to (stream, &kernel, NULL, NULL);
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
  REQUIRE_ARGUMENTS (config);
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
