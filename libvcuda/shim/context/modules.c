/* Modules and libraries: what an image states is reserved before the driver loads it, though a
   driver may take it later, kernel by kernel. A variable of an image that states nothing is counted
   when the driver first names it, which is after it took the memory.  */

#include "context/modules.h"

#include "charge/charge.h"
#include "context/loaded_images.h"
#include "memory/reserve.h"
#include "pages/device.h"
#include "pages/pass_on.h"

static void
give_back (const uint64_t *bytes)
{
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    if (bytes[gpu])
      vcuda_give_back (gpu, bytes[gpu]);
}

static void
forget (struct vcuda_image *image)
{
  uint64_t bytes[VCUDA_MAX_GPUS] = { 0 };
  vcuda_image_drop (image, bytes);
  give_back (bytes);
}

CUresult
vcuda_image_reserve (struct vcuda_charge *charge, uint64_t bytes)
{
  *charge = (struct vcuda_charge){ .gpu = -1 };
  CUcontext context;
  if (vcuda_gpu_current (&charge->gpu, &context) != CUDA_SUCCESS || !context)
    return CUDA_SUCCESS;
  charge->context = context;
  charge->bytes = bytes;
  return bytes ? vcuda_reserve (charge->gpu, bytes) : CUDA_SUCCESS;
}

void
vcuda_variable_named (const void *handle, CUdeviceptr start, uint64_t bytes)
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
    CUresult rc = vcuda_image_reserve (&charge, size.bytes);                                       \
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
      vcuda_variable_named (module, where, size);                                                  \
    return rc;                                                                                     \
  }

/* The first version has 32-bit pointers, of CUDA before 3.2.  */
GET_GLOBAL (cuModuleGetGlobal, CUdeviceptr_v1, unsigned int)
GET_GLOBAL (cuModuleGetGlobal_v2, CUdeviceptr, size_t)
