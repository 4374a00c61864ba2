/* Memory between processes: IPC handles, shared pools, external memory.  */

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/window.h"

_Static_assert (sizeof (struct place) <= sizeof (CUipcMemHandle), "a place fits a handle");
_Static_assert (sizeof (struct place) <= sizeof (CUmemPoolPtrExportData), "and a pool's");

CUresult
cuIpcGetMemHandle (CUipcMemHandle *handle, CUdeviceptr dptr)
{
  REQUIRE_CONTEXT (context);
  struct place place;
  REQUIRE (handle && softgpu_place_of (dptr, &place), CUDA_ERROR_INVALID_VALUE);
  memset (handle, 0, sizeof *handle);
  memcpy (handle, &place, sizeof place);
  return CUDA_SUCCESS;
}

CUresult
cuIpcOpenMemHandle_v2 (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (pdptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUDA_ERROR_INVALID_VALUE);
  struct place place;
  memcpy (&place, &handle, sizeof place);
  return softgpu_open_place ((uintptr_t *) pdptr, &place, OPENED_HANDLE);
}

ALSO_NAMED (cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2);

CUresult
cuIpcCloseMemHandle (CUdeviceptr dptr)
{
  REQUIRE_CONTEXT (context);
  return softgpu_close_window (dptr, OPENED_HANDLE);
}

CUresult
cuMemPoolExportToShareableHandle (void *handle, CUmemoryPool pool, CUmemAllocationHandleType type,
                                  unsigned long long flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (handle && valid_pool (pool) && flags == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (pool->shareable && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
           CUDA_ERROR_INVALID_VALUE);
  struct shared_note note = { .kind = MEMORY_POOL, .gpu = gpu_index (pool->device) };
  int fd = softgpu_export (0, &note);
  REQUIRE (fd >= 0, CUDA_ERROR_OUT_OF_MEMORY);
  *(int *) handle = fd;
  return CUDA_SUCCESS;
}

CUresult
cuMemPoolImportFromShareableHandle (CUmemoryPool *ppool, void *handle,
                                    CUmemAllocationHandleType type, unsigned long long flags)
{
  REQUIRE_DRIVER ();
  struct shared_note note;
  REQUIRE (ppool && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (softgpu_shared_note ((int) (intptr_t) handle, &note) && note.kind == MEMORY_POOL,
           CUDA_ERROR_INVALID_VALUE);
  CUdevice device = device_of_gpu (note.gpu);
  REQUIRE (device >= 0, CUDA_ERROR_INVALID_DEVICE);
  CUmemoryPool pool = softgpu_new_record (sizeof *pool);
  REQUIRE (pool, CUDA_ERROR_OUT_OF_MEMORY);
  pool->kind = MEMORY_POOL;
  pool->device = device;
  pool->imported = true;
  *ppool = pool;
  return CUDA_SUCCESS;
}

CUresult
cuMemPoolExportPointer (CUmemPoolPtrExportData *data, CUdeviceptr ptr)
{
  REQUIRE_DRIVER ();
  struct block block;
  struct place place;
  REQUIRE (data && softgpu_find_block (ptr, &block) && block.pool && block.pool->shareable,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (softgpu_place_of (ptr, &place), CUDA_ERROR_OUT_OF_MEMORY);
  memset (data, 0, sizeof *data);
  memcpy (data, &place, sizeof place);
  return CUDA_SUCCESS;
}

CUresult
cuMemPoolImportPointer (CUdeviceptr *ptr, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
  REQUIRE_DRIVER ();
  REQUIRE (ptr && data && valid_pool (pool) && pool->imported, CUDA_ERROR_INVALID_VALUE);
  struct place place;
  memcpy (&place, data, sizeof place);
  return softgpu_open_place ((uintptr_t *) ptr, &place, FREED);
}

/* Memory that a descriptor stands for. It is on its maker's account, if on any GPU's. */
struct CUextMemory_st
{
  uint32_t kind; /* EXTERNAL_MEMORY */
  int fd;
  CUdevice device;
  uint64_t bytes;
};

/* On success the descriptor is the driver's.  */
CUresult
cuImportExternalMemory (CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (memory && desc && desc->size
               && (desc->flags & ~(unsigned) CUDA_EXTERNAL_MEMORY_DEDICATED) == 0,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, CUDA_ERROR_NOT_SUPPORTED);
  struct stat file;
  REQUIRE (fstat (desc->handle.fd, &file) == 0 && (uint64_t) file.st_size >= desc->size,
           CUDA_ERROR_INVALID_VALUE);
  CUexternalMemory made = softgpu_new_record (sizeof *made);
  REQUIRE (made, CUDA_ERROR_OUT_OF_MEMORY);
  *made = (struct CUextMemory_st){
    .kind = EXTERNAL_MEMORY, .fd = desc->handle.fd, .device = context->device, .bytes = desc->size
  };
  *memory = made;
  return CUDA_SUCCESS;
}

CUresult
cuExternalMemoryGetMappedBuffer (CUdeviceptr *ptr, CUexternalMemory memory,
                                 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (ptr && desc && desc->size && desc->flags == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (memory && memory->kind == EXTERNAL_MEMORY, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (desc->offset <= memory->bytes && desc->size <= memory->bytes - desc->offset,
           CUDA_ERROR_INVALID_VALUE);
  return softgpu_open_window ((uintptr_t *) ptr, memory->fd, desc->offset, desc->size,
                              memory->device, FREED, NULL);
}

CUresult
cuDestroyExternalMemory (CUexternalMemory memory)
{
  REQUIRE_DRIVER ();
  REQUIRE (memory && memory->kind == EXTERNAL_MEMORY, CUDA_ERROR_INVALID_HANDLE);
  close (memory->fd);
  softgpu_retire (memory, sizeof *memory);
  return CUDA_SUCCESS;
}
