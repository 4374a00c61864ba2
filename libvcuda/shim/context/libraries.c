/* Libraries. A library belongs to no context. It enters a context when it is loaded there, or when
   a call looks into it from there: then the memory of its image is reserved once more.  */

#include <pthread.h>

#include "charge/charge.h"
#include "context/forget.h"
#include "context/loaded_images.h"
#include "context/modules.h"
#include "memory/settle.h"
#include "pages/device.h"
#include "pages/pass_on.h"

/* One thread at a time, or two would reserve the same library in a context twice.  */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static bool
missing_here (CUlibrary library, uint64_t *bytes)
{
  int gpu;
  CUcontext context;
  return vcuda_gpu_current (&gpu, &context) == CUDA_SUCCESS && context
         && vcuda_image_missing (library, context, bytes);
}

/* Before the driver looks into LIBRARY. If that brings it into the current context, CHARGE has a
   context and the lock is held until `entered`; on failure neither.  */
static CUresult
enter (CUlibrary library, struct vcuda_charge *charge)
{
  uint64_t bytes;
  charge->context = NULL;
  if (!missing_here (library, &bytes))
    return CUDA_SUCCESS;
  pthread_mutex_lock (&mutex);
  CUresult rc = CUDA_SUCCESS;
  if (missing_here (library, &bytes))
    rc = vcuda_image_reserve (charge, bytes);
  if (rc != CUDA_SUCCESS)
    charge->context = NULL;
  if (!charge->context)
    pthread_mutex_unlock (&mutex);
  return rc;
}

static CUresult
entered (CUlibrary library, const struct vcuda_charge *charge, CUresult rc)
{
  if (!charge->context)
    return rc;
  if (rc == CUDA_SUCCESS)
    vcuda_image_placed (library, charge);
  else if (charge->bytes)
    vcuda_give_back (charge->gpu, charge->bytes);
  pthread_mutex_unlock (&mutex);
  return rc;
}

#define ENTERING(library, call)                                                                    \
  ({                                                                                               \
    struct vcuda_charge charge;                                                                    \
    CUresult enter_rc = enter (library, &charge);                                                  \
    enter_rc == CUDA_SUCCESS ? entered (library, &charge, VCUDA_CALL_DRIVER (call)) : enter_rc;    \
  })

CUresult
vcuda_cuLibraryGetModule (CUmodule *module, CUlibrary library)
{
  VCUDA_PASS_ON (real.cuLibraryGetModule (module, library));
  return ENTERING (library, real.cuLibraryGetModule (module, library));
}

CUresult
vcuda_cuLibraryGetGlobal (CUdeviceptr *start, size_t *bytes, CUlibrary library, const char *name)
{
  VCUDA_PASS_ON (real.cuLibraryGetGlobal (start, bytes, library, name));
  CUresult rc = ENTERING (library, real.cuLibraryGetGlobal (start, bytes, library, name));
  CUdeviceptr where;
  size_t size;
  if (rc == CUDA_SUCCESS && vcuda_image_size_unknown (library)
      && VCUDA_CALL_DRIVER (real.cuLibraryGetGlobal (&where, &size, library, name)) == CUDA_SUCCESS)
    vcuda_variable_named (library, where, size);
  return rc;
}

CUresult
vcuda_cuKernelGetFunction (CUfunction *function, CUkernel kernel)
{
  CUlibrary library;
  VCUDA_PASS_ON (real.cuKernelGetFunction (function, kernel));
  /* Drivers before 12.5 don't report it: there a library that is only launched from counts where it
     was loaded.  */
  if (real.cuKernelGetLibrary (&library, kernel) != CUDA_SUCCESS)
    return real.cuKernelGetFunction (function, kernel);
  return ENTERING (library, real.cuKernelGetFunction (function, kernel));
}

void
vcuda_libraries_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
}
