/* The grid, the shared memory, the time and the width of a kernel's launch.  */

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

/* Reads the u64 parameter AT. Parameters come as pointers, or packed in one buffer that EXTRA
   names.  */
static CUresult
read_parameter (int at, void **params, void **extra, uint64_t *value)
{
  if (params)
    {
      memcpy (value, params[at], sizeof *value);
      return CUDA_SUCCESS;
    }
  const char *buffer = NULL;
  size_t size = 0, offset = (size_t) at * sizeof *value;
  for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = extra[1];
    else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
      size = *(const size_t *) extra[1];
  REQUIRE (buffer && offset + sizeof *value <= size, CUDA_ERROR_INVALID_VALUE);
  memcpy (value, buffer + offset, sizeof *value);
  return CUDA_SUCCESS;
}

/* At least one multiprocessor, and at most all of them.  */
static uint32_t
width_of (uint64_t percent, const unsigned grid[3], const unsigned block[3])
{
  unsigned __int128 threads
      = (unsigned __int128) grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2];
  if (percent)
    threads = (unsigned __int128) percent * SOFTGPU_WHOLE / 100;
  if (threads > SOFTGPU_WHOLE)
    return SOFTGPU_WHOLE;
  return threads < SOFTGPU_MULTIPROCESSOR_THREADS ? SOFTGPU_MULTIPROCESSOR_THREADS
                                                  : (uint32_t) threads;
}

CUresult
softgpu_kernel_cost (CUfunction function, const unsigned grid[3], const unsigned block[3],
                     void **params, void **extra, struct kernel_cost *cost)
{
  REQUIRE (!params || !extra, CUDA_ERROR_INVALID_VALUE);
  *cost = (struct kernel_cost){ .time_ns = function->time_ns, .percent = function->width_percent };
  if (function->time_param >= 0)
    REQUIRE_SUCCESS (read_parameter (function->time_param, params, extra, &cost->time_ns));
  if (function->width_param >= 0)
    REQUIRE_SUCCESS (read_parameter (function->width_param, params, extra, &cost->percent));
  cost->width = width_of (cost->percent, grid, block);
  return CUDA_SUCCESS;
}
