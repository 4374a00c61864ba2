/* The mock driver's arrays, imports and copies, which do nothing.  */

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <stdlib.h>

#define EXPORT __attribute__ ((visibility ("default")))

static void *
handle (void)
{
  return malloc (64);
}

EXPORT CUresult
cuArrayCreate_v2 (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted)
{
  *array = handle ();
  return wanted->Width ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuArray3DCreate_v2 (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted)
{
  *array = handle ();
  return wanted->Width ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuMipmappedArrayCreate (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                        unsigned int levels)
{
  *array = handle ();
  return wanted->Width && levels ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuArrayDestroy (CUarray array)
{
  return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult
cuMipmappedArrayDestroy (CUmipmappedArray array)
{
  return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult
cuImportExternalMemory (CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *wanted)
{
  *memory = handle ();
  return wanted->size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuDestroyExternalMemory (CUexternalMemory memory)
{
  return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult
cuMemcpyDtoDAsync_v2 (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
  (void) bytes, (void) stream;
  return to && from ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuStreamCreate (CUstream *stream, unsigned int flags)
{
  (void) flags;
  *stream = handle ();
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuStreamSynchronize (CUstream stream)
{
  return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
