/* cuGetProcAddress: symbol and CUDA version to the entry point that fits.  */

#include <string.h>

#include "driver/driver.h"
#include "driver/tables.h"

/* The first row with a symbol that is not before SYMBOL.  */
static size_t
first_form (const char *symbol)
{
  size_t low = 0, high = softgpu_entry_point_count;
  while (low < high)
    {
      size_t middle = (low + high) / 2;
      if (strcmp (softgpu_entry_points[middle].symbol, symbol) < 0)
        low = middle + 1;
      else
        high = middle;
    }
  return low;
}

CUresult
cuGetProcAddress_v2 (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                     CUdriverProcAddressQueryResult *symbolStatus)
{
  REQUIRE (symbol && *symbol && pfn, CUDA_ERROR_INVALID_VALUE);
  const cuuint64_t known
      = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  REQUIRE ((flags & ~known) == 0 && flags != known, CUDA_ERROR_INVALID_VALUE);

  const struct entry_point *best = NULL;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  for (size_t i = first_form (symbol);
       i < softgpu_entry_point_count && strcmp (softgpu_entry_points[i].symbol, symbol) == 0; i++)
    {
      status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      if (softgpu_entry_points[i].since <= cudaVersion)
        best = &softgpu_entry_points[i];
    }
  *pfn = NULL;
  if (best)
    {
      status = CU_GET_PROC_ADDRESS_SUCCESS;
      bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
      *pfn = (void *) (per_thread ? best->per_thread : best->function);
    }
  if (symbolStatus)
    *symbolStatus = status;
  /* Real drivers answer a caller that can't see the status with an error.  */
  return best || symbolStatus ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult
cuGetProcAddress (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
  return cuGetProcAddress_v2 (symbol, pfn, cudaVersion, flags, NULL);
}

/* Tables of private functions, which only NVIDIA's own runtime asks for.  */
CUresult
cuGetExportTable (const void **ppExportTable, const CUuuid *pExportTableId)
{
  REQUIRE (ppExportTable && pExportTableId, CUDA_ERROR_INVALID_VALUE);
  *ppExportTable = NULL;
  return CUDA_ERROR_NOT_FOUND;
}
