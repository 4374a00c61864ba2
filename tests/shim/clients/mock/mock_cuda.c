/* A driver that does nothing, as libcuda.so.1: for what the software GPU lacks, and to measure the
   shim alone. Its functions call one another by their exported names, as a driver
   linked without -Bsymbolic does.  */

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <string.h>

#include "mock/mock.h"

#define EXPORT __attribute__ ((visibility ("default")))

void (*mock_in_wait) (void);
float mock_elapsed_ms;
unsigned *mock_records;

static CUdeviceptr next = 0x7f0000000000ull;
static int context;

EXPORT CUresult
cuInit (unsigned int flags)
{
  return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult
cuDeviceGet (CUdevice *device, int ordinal)
{
  *device = ordinal;
  return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult
cuDeviceGetUuid_v2 (CUuuid *uuid, CUdevice device)
{
  memset (uuid->bytes, device + 1, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuDeviceTotalMem_v2 (size_t *bytes, CUdevice device)
{
  (void) device;
  *bytes = 1ull << 40;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuDevicePrimaryCtxRetain (CUcontext *pctx, CUdevice device)
{
  (void) device;
  *pctx = (CUcontext) &context;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuCtxSetCurrent (CUcontext ctx)
{
  return ctx == (CUcontext) &context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult
cuCtxGetCurrent (CUcontext *pctx)
{
  *pctx = (CUcontext) &context;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuCtxGetDevice (CUdevice *device)
{
  *device = 0;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuMemGetInfo_v2 (size_t *free_bytes, size_t *total)
{
  *free_bytes = *total = 1ull << 40;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuMemAlloc_v2 (CUdeviceptr *dptr, size_t bytes)
{
  *dptr = __atomic_add_fetch (&next, (bytes + 511) / 512 * 512, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuMemFree_v2 (CUdeviceptr dptr)
{
  return dptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuMemAllocPitch_v2 (CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                    unsigned int element)
{
  (void) element;
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc_v2 (dptr, *pitch * height);
}

EXPORT CUresult
cuMemAllocAsync (CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
  (void) stream;
  return cuMemAlloc_v2 (dptr, bytes);
}

EXPORT CUresult
cuMemAllocFromPoolAsync (CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
  (void) pool;
  return cuMemAllocAsync (dptr, bytes, stream);
}

EXPORT CUresult
cuMemFreeAsync (CUdeviceptr dptr, CUstream stream)
{
  (void) stream;
  return cuMemFree_v2 (dptr);
}

EXPORT CUresult
cuMemCreate (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
             unsigned long long flags)
{
  (void) prop, (void) flags;
  return cuMemAlloc_v2 ((CUdeviceptr *) handle, bytes);
}

EXPORT CUresult
cuMemRelease (CUmemGenericAllocationHandle handle)
{
  return cuMemFree_v2 (handle);
}

EXPORT CUresult
cuMemMap (CUdeviceptr start, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
          unsigned long long flags)
{
  (void) bytes, (void) offset, (void) flags;
  return start && handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuMemUnmap (CUdeviceptr start, size_t bytes)
{
  return start && bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuLaunchKernel (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
                void **parameters, void **extra)
{
  (void) gx, (void) gy, (void) gz, (void) bx, (void) by, (void) bz, (void) shared;
  (void) stream, (void) parameters;
  if (extra)
    {
      const struct mock_interruption *now = (const struct mock_interruption *) extra;
      mock_in_wait = now->in_wait ? now->function : NULL;
      if (!now->in_wait)
        now->function ();
      mock_elapsed_ms = now->elapsed_ms;
      mock_records = now->records;
    }
  return f ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The answer is not the driver's export: the shim must return its own function even so.  */
static CUresult
hidden_alloc (CUdeviceptr *dptr, size_t bytes)
{
  return cuMemAlloc_v2 (dptr, bytes);
}

static CUresult
newer_than_the_header (void)
{
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuGetProcAddress_v2 (const char *symbol, void **pfn, int version, cuuint64_t flags,
                     CUdriverProcAddressQueryResult *status)
{
  (void) version, (void) flags;
  *pfn = NULL;
  if (!strcmp (symbol, "cuMemAlloc"))
    *pfn = (void *) hidden_alloc;
  else if (!strcmp (symbol, "cuMemFree"))
    *pfn = (void *) cuMemFree_v2;
  else if (!strcmp (symbol, "cuInit"))
    *pfn = (void *) cuInit;
  else if (!strcmp (symbol, "cuDeviceGet"))
    *pfn = (void *) cuDeviceGet;
  else if (!strcmp (symbol, "cuGetProcAddress"))
    *pfn = (void *) cuGetProcAddress_v2;
  else if (!strcmp (symbol, "cuFromTheFuture"))
    *pfn = (void *) newer_than_the_header;
  if (status)
    *status = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult
cuGetExportTable (const void **table, const CUuuid *id)
{
  static const int private_table[4];
  *table = private_table;
  return id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
