/* Memory that another API made (Vulkan, OpenGL, Direct3D) and this process imports. The shim does
   not see its allocation, so the importing process is charged for all of it until it destroys the
   import; what is mapped from it is part of it.  */

#include "charge/alloc_map.h"
#include "memory/settle.h"

CUresult
vcuda_cuImportExternalMemory (CUexternalMemory *memory,
                              const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *wanted)
{
  VCUDA_ALLOCATE (wanted ? wanted->size : 0, real.cuImportExternalMemory (memory, wanted),
                  VCUDA_KEY (VCUDA_EXTERNAL_MEMORY, *memory), VCUDA_OF_CONTEXT);
}

CUresult
vcuda_cuDestroyExternalMemory (CUexternalMemory memory)
{
  VCUDA_RELEASE (VCUDA_KEY (VCUDA_EXTERNAL_MEMORY, memory), real.cuDestroyExternalMemory (memory));
}
