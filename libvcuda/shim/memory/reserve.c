#include "memory/reserve.h"

#include "memory/charge.h"
#include "memory/pools_held.h"
#include "memory/stream_unmaps.h"

static __attribute__ ((noinline)) CUresult
reserve_what_pools_keep (int gpu, uint64_t bytes)
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
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? reserve_what_pools_keep (gpu, bytes) : rc;
}
