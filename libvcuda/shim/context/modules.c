/* Modules and libraries. What an image states is reserved before the driver loads it, though a
   driver may take it later, kernel by kernel. A variable of an image that states nothing is counted
   when the driver first names it, which is after it took the memory, so whether or not it fits.

   A library belongs to no context. It enters a context when it is loaded there, or when a call
   looks into it from there: then the memory of its image is reserved once more.  */

#include <pthread.h>

#include "charge/charge.h"
#include "context/forget.h"
#include "context/loaded_images.h"
#include "memory/reserve.h"
#include "pages/device.h"
#include "pages/pass_on.h"

static void
forget (struct vcuda_image *image)
{
  uint64_t bytes[VCUDA_MAX_GPUS] = { 0 };
  vcuda_image_drop (image, bytes);
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    if (bytes[gpu])
      vcuda_give_back (gpu, bytes[gpu]);
}

/* Reserves BYTES in the current context. Without a current context it reserves nothing, and CHARGE
   has no context.  */
static CUresult
reserve (struct vcuda_charge *charge, uint64_t bytes)
{
  *charge = (struct vcuda_charge){ .gpu = -1 };
  CUcontext context;
  if (vcuda_gpu_current (&charge->gpu, &context) != CUDA_SUCCESS || !context)
    return CUDA_SUCCESS;
  charge->context = context;
  charge->bytes = bytes;
  return bytes ? vcuda_reserve (charge->gpu, bytes) : CUDA_SUCCESS;
}

/* The driver named the variable at START of an image of unknown size.  */
static void
variable_named (const void *handle, CUdeviceptr start, uint64_t bytes)
{
  struct vcuda_charge charge = { .bytes = bytes };
  CUcontext context;
  if (vcuda_gpu_current (&charge.gpu, &context) == CUDA_SUCCESS)
    charge.context = context;
  if (vcuda_image_named (handle, start, &charge))
    vcuda_charge_unchecked (charge.gpu, bytes);
}

static CUresult
loaded (const struct vcuda_charge *charge, CUresult rc, const void *handle,
        const struct vcuda_image_size *size, bool library)
{
  if (rc != CUDA_SUCCESS)
    {
      if (charge->bytes)
        vcuda_give_back (charge->gpu, charge->bytes);
      return rc;
    }
  struct vcuda_image *ended = vcuda_image_take (handle); /* an image that ended unseen */
  if (ended)
    forget (ended);
  vcuda_image_loaded (handle, size, library);
  if (charge->context)
    vcuda_image_placed (handle, charge);
  return rc;
}

#define LOAD(name, parameters, arguments, out, image_size, library)                                \
  CUresult vcuda_##name parameters                                                                 \
  {                                                                                                \
    struct vcuda_charge charge;                                                                    \
    VCUDA_PASS_ON (real.name arguments);                                                           \
    struct vcuda_image_size size = image_size;                                                     \
    CUresult rc = reserve (&charge, size.bytes);                                                   \
    if (rc != CUDA_SUCCESS)                                                                        \
      return rc;                                                                                   \
    rc = VCUDA_CALL_DRIVER (real.name arguments);                                                  \
    return loaded (&charge, rc, rc == CUDA_SUCCESS ? *out : NULL, &size, library);                 \
  }

LOAD (cuModuleLoad, (CUmodule * module, const char *path), (module, path), module,
      vcuda_image_in_file (path), false)
LOAD (cuModuleLoadData, (CUmodule * module, const void *image), (module, image), module,
      vcuda_image_in_memory (image), false)
LOAD (cuModuleLoadDataEx,
      (CUmodule * module, const void *image, unsigned int count, CUjit_option *options,
       void **values),
      (module, image, count, options, values), module, vcuda_image_in_memory (image), false)
LOAD (cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image), module,
      vcuda_image_in_memory (image), false)
LOAD (cuLibraryLoadData,
      (CUlibrary * library, const void *code, CUjit_option *options, void **values,
       unsigned int count, CUlibraryOption *own, void **own_values, unsigned int own_count),
      (library, code, options, values, count, own, own_values, own_count), library,
      vcuda_image_in_memory (code), true)
LOAD (cuLibraryLoadFromFile,
      (CUlibrary * library, const char *path, CUjit_option *options, void **values,
       unsigned int count, CUlibraryOption *own, void **own_values, unsigned int own_count),
      (library, path, options, values, count, own, own_values, own_count), library,
      vcuda_image_in_file (path), true)

/* The entry is taken out first: after the call the driver may give the same handle to another
   thread.  */
#define UNLOAD(name, type)                                                                         \
  CUresult vcuda_##name (type handle)                                                              \
  {                                                                                                \
    VCUDA_PASS_ON (real.name (handle));                                                            \
    struct vcuda_image *image = vcuda_image_take (handle);                                         \
    CUresult rc = VCUDA_CALL_DRIVER (real.name (handle));                                          \
    if (image && rc == CUDA_SUCCESS)                                                               \
      forget (image);                                                                              \
    else if (image)                                                                                \
      vcuda_image_put (image);                                                                     \
    return rc;                                                                                     \
  }

UNLOAD (cuModuleUnload, CUmodule)
UNLOAD (cuLibraryUnload, CUlibrary)

#define GET_GLOBAL(name, pointer, number)                                                          \
  CUresult vcuda_##name (pointer *start, number *bytes, CUmodule module, const char *variable)     \
  {                                                                                                \
    VCUDA_PASS_ON (real.name (start, bytes, module, variable));                                    \
    CUresult rc = VCUDA_CALL_DRIVER (real.name (start, bytes, module, variable));                  \
    pointer where;                                                                                 \
    number size;                                                                                   \
    if (rc == CUDA_SUCCESS && vcuda_image_size_unknown (module)                                    \
        && VCUDA_CALL_DRIVER (real.name (&where, &size, module, variable)) == CUDA_SUCCESS)        \
      variable_named (module, where, size);                                                        \
    return rc;                                                                                     \
  }

/* The first version has 32-bit pointers, of CUDA before 3.2.  */
GET_GLOBAL (cuModuleGetGlobal, CUdeviceptr_v1, unsigned int)
GET_GLOBAL (cuModuleGetGlobal_v2, CUdeviceptr, size_t)

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
    rc = reserve (charge, bytes);
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
    variable_named (library, where, size);
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
