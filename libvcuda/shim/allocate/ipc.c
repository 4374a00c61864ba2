/* Memory of other processes: it is charged there, and keeps this one on the GPU.  */

#include "memory/unsaved.h"
#include "pages/pages.h"
#include "real.h"
#include "thread/in_driver.h"

#define OPENS(name, parameters, arguments)                                                         \
  CUresult vcuda_##name parameters                                                                 \
  {                                                                                                \
    if (!vcuda_ready ())                                                                           \
      return CUDA_ERROR_SYSTEM_NOT_READY;                                                          \
    CUresult rc = VCUDA_CALL_DRIVER (real.name arguments);                                         \
    if (rc == CUDA_SUCCESS)                                                                        \
      vcuda_note_ipc ();                                                                           \
    return rc;                                                                                     \
  }

OPENS (cuIpcOpenMemHandle, (CUdeviceptr * dptr, CUipcMemHandle handle, unsigned int flags),
       (dptr, handle, flags))
OPENS (cuIpcOpenMemHandle_v2, (CUdeviceptr * dptr, CUipcMemHandle handle, unsigned int flags),
       (dptr, handle, flags))
OPENS (cuMemPoolImportPointer,
       (CUdeviceptr * dptr, CUmemoryPool pool, CUmemPoolPtrExportData *data), (dptr, pool, data))
