/* Occupancy: only a kernel's threads limit it here.  */

#include "module/module.h"

enum
{
  BLOCKS = 32, /* of a multiprocessor, at most */
  LARGEST_BLOCK = 1024,
};

CUresult
cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags (int *blocks, CUfunction function, int threads,
                                                      size_t shared, unsigned int flags)
{
  REQUIRE_ARGUMENTS (blocks && threads > 0 && flags <= CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE
                     && function_valid (function));
  (void) shared;
  int fit = threads > LARGEST_BLOCK ? 0 : SOFTGPU_MULTIPROCESSOR_THREADS / threads;
  *blocks = fit > BLOCKS ? BLOCKS : fit;
  return CUDA_SUCCESS;
}

CUresult
cuOccupancyMaxActiveBlocksPerMultiprocessor (int *blocks, CUfunction function, int threads,
                                             size_t shared)
{
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags (blocks, function, threads, shared,
                                                               0);
}

CUresult
cuOccupancyMaxPotentialBlockSizeWithFlags (int *grid, int *block, CUfunction function,
                                           CUoccupancyB2DSize shared_of, size_t shared, int limit,
                                           unsigned int flags)
{
  REQUIRE_ARGUMENTS (grid && block);
  (void) shared_of;
  *block = limit > 0 && limit < LARGEST_BLOCK ? limit : LARGEST_BLOCK;
  int blocks = 0;
  CUresult rc = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags (&blocks, function, *block,
                                                                      shared, flags);
  *grid = blocks * SOFTGPU_MULTIPROCESSORS;
  return rc;
}

CUresult
cuOccupancyMaxPotentialBlockSize (int *grid, int *block, CUfunction function,
                                  CUoccupancyB2DSize shared_of, size_t shared, int limit)
{
  return cuOccupancyMaxPotentialBlockSizeWithFlags (grid, block, function, shared_of, shared, limit,
                                                    0);
}
