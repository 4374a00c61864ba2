/* Memory of other processes: it is charged there, and keeps this one on the GPU.  */

#include "memory/unsaved.h"
#include "pages/pages.h"
#include "real.h"
#include "thread/in_driver.h"

static CUresult
noted (CUresult rc)
{
  if (rc == CUDA_SUCCESS)
    vcuda_note_ipc ();
  return rc;
}

CUresult
vcuda_cuIpcOpenMemHandle (CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  return noted (VCUDA_CALL_DRIVER (real.cuIpcOpenMemHandle (dptr, handle, flags)));
}

CUresult
vcuda_cuIpcOpenMemHandle_v2 (CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  return noted (VCUDA_CALL_DRIVER (real.cuIpcOpenMemHandle_v2 (dptr, handle, flags)));
}

CUresult
vcuda_cuMemPoolImportPointer (CUdeviceptr *dptr, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  return noted (VCUDA_CALL_DRIVER (real.cuMemPoolImportPointer (dptr, pool, data)));
}
