/* Reserves device memory; before a refusal it makes the driver give back what it keeps.  */

#include "memory/reserve.h"

#include "charge/charge.h"
#include "charge/pools_held.h"
#include "memory/stream_unmaps.h"

static __attribute__ ((noinline)) CUresult
trim_and_reserve (int gpu, uint64_t bytes)
{
  CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
  if (gpu >= 0 && bytes <= vcuda_memory_limit (gpu))
    {
      bool freed = vcuda_stream_unmaps_settle ();
      if (vcuda_pools_trim (gpu) || freed)
        rc = vcuda_try_reserve (gpu, bytes);
    }
  if (rc == CUDA_ERROR_OUT_OF_MEMORY)
    vcuda_count_refusal (gpu);
  return rc;
}

CUresult
vcuda_reserve (int gpu, uint64_t bytes)
{
  CUresult rc = vcuda_try_reserve (gpu, bytes);
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? trim_and_reserve (gpu, bytes) : rc;
}
