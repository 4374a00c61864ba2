/* The grid, the shared memory and the time of a kernel's launch.  */

#include "driver/function.h"

#include <string.h>

bool
softgpu_shape_fits (const unsigned grid[3], const unsigned block[3], unsigned shared)
{
  return grid[0] && grid[1] && grid[2] && block[0] && block[1] && block[2] && grid[0] <= INT32_MAX
         && grid[1] <= 65535 && grid[2] <= 65535 && block[2] <= 64
         && (uint64_t) block[0] * block[1] <= 1024 && block[0] * block[1] * block[2] <= 1024
         && shared <= 227 << 10;
}

/* Parameters come as pointers, or packed in one buffer that EXTRA names.  */
CUresult
softgpu_kernel_time (CUfunction function, void **params, void **extra, uint64_t *time_ns)
{
  REQUIRE (!params || !extra, CUDA_ERROR_INVALID_VALUE);
  *time_ns = function->time_ns;
  if (function->time_param < 0)
    return CUDA_SUCCESS;
  if (params)
    {
      memcpy (time_ns, params[function->time_param], sizeof *time_ns);
      return CUDA_SUCCESS;
    }
  const char *buffer = NULL;
  size_t size = 0, offset = (size_t) function->time_param * sizeof *time_ns;
  for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = extra[1];
    else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
      size = *(const size_t *) extra[1];
  REQUIRE (buffer && offset + sizeof *time_ns <= size, CUDA_ERROR_INVALID_VALUE);
  memcpy (time_ns, buffer + offset, sizeof *time_ns);
  return CUDA_SUCCESS;
}
