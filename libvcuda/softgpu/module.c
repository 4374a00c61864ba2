/* Modules: loading an image, finding its kernels by name.  */

#include "module.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CUfunction
softgpu_add_function (struct CUmod_st *module, const char *name, size_t length)
{
  CUfunction function = softgpu_new_record (sizeof *function + length + 1);
  if (!function)
    return NULL;
  function->kind = FUNCTION;
  function->module = module;
  function->time_ns = SOFTGPU_DEFAULT_KERNEL_NS;
  function->time_param = -1;
  memcpy (function->name, name, length);
  function->next = module->functions;
  module->functions = function;
  module->count++;
  return function;
}

/* Charged as the driver does, when the module is loaded. A destroyed context takes it along.  */
CUresult
softgpu_add_variable (struct CUmod_st *module, const char *name, size_t length, size_t bytes)
{
  struct variable *variable = calloc (1, sizeof *variable + length + 1);
  REQUIRE (variable, CUDA_ERROR_OUT_OF_MEMORY);
  memcpy (variable->name, name, length);
  variable->bytes = bytes;
  CUresult rc = softgpu_allocate ((uintptr_t *) &variable->start, bytes, ON_DEVICE, 0, NULL);
  if (rc != CUDA_SUCCESS)
    {
      free (variable);
      return rc;
    }
  memset ((void *) variable->start, 0, bytes);
  variable->next = module->variables;
  module->variables = variable;
  return CUDA_SUCCESS;
}

static void
unload (struct CUmod_st *module)
{
  for (CUfunction next, function = module->functions; function; function = next)
    {
      next = function->next;
      softgpu_retire (function, sizeof *function + strlen (function->name) + 1);
    }
  for (struct variable *next, *variable = module->variables; variable; variable = next)
    {
      next = variable->next;
      softgpu_release (variable->start, COUNTED);
      free (variable);
    }
  softgpu_retire (module, sizeof *module);
}

static CUresult
load (struct CUmod_st **pmodule, const void *image)
{
  REQUIRE_DRIVER ();
  REQUIRE (pmodule && image, CUDA_ERROR_INVALID_VALUE);
  struct CUmod_st *module = softgpu_new_record (sizeof *module);
  REQUIRE (module, CUDA_ERROR_OUT_OF_MEMORY);
  module->kind = MODULE;
  CUresult rc = CUDA_SUCCESS;
  /* ELF, fat binary, and the wrapper that nvcc puts around one.  */
  const unsigned elf = 0x464c457f, fat = 0xba55ed50, wrapper = 0x466243b1;
  unsigned char first = *(const unsigned char *) image;
  if (first == '.' || first == '/' || first == ' ' || first == '\n' || first == '\r'
      || first == '\t')
    rc = softgpu_read_ptx (module, image);
  else
    {
      unsigned magic;
      memcpy (&magic, image, sizeof magic);
      module->any_name = magic == elf || magic == fat || magic == wrapper;
      if (!module->any_name)
        rc = CUDA_ERROR_INVALID_IMAGE;
    }
  if (rc != CUDA_SUCCESS)
    unload (module);
  else
    *pmodule = module;
  return rc;
}

static CUresult
load_file (struct CUmod_st **pmodule, const char *path)
{
  REQUIRE_DRIVER ();
  REQUIRE (pmodule && path, CUDA_ERROR_INVALID_VALUE);
  FILE *file = fopen (path, "rbe");
  REQUIRE (file, CUDA_ERROR_FILE_NOT_FOUND);
  char *image = NULL;
  size_t size = 0, room = 0;
  CUresult rc = CUDA_SUCCESS;
  do
    {
      room = room ? 2 * room : 65536;
      char *larger = realloc (image, room + 8);
      if (!larger)
        {
          rc = CUDA_ERROR_OUT_OF_MEMORY;
          break;
        }
      image = larger;
      size += fread (image + size, 1, room - size, file);
    }
  while (size == room);
  fclose (file);
  if (rc == CUDA_SUCCESS)
    {
      memset (image + size, 0, 8);
      rc = load (pmodule, image);
    }
  free (image);
  return rc;
}

static CUresult
find_function (struct CUfunc_st **pfunction, struct CUmod_st *module, const char *name)
{
  REQUIRE_DRIVER ();
  REQUIRE (pfunction && name && *name, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (module && module->kind == MODULE, CUDA_ERROR_INVALID_HANDLE);
  softgpu_lock (&driver.tie);
  CUfunction function = module->functions;
  while (function && strcmp (function->name, name) != 0)
    function = function->next;
  if (!function && module->any_name)
    function = softgpu_add_function (module, name, strlen (name));
  softgpu_unlock (&driver.tie);
  REQUIRE (function, CUDA_ERROR_NOT_FOUND);
  *pfunction = function;
  return CUDA_SUCCESS;
}

CUresult
cuModuleLoadData (CUmodule *module, const void *image)
{
  REQUIRE_CONTEXT (context);
  return load (module, image);
}

CUresult
cuModuleLoadDataEx (CUmodule *module, const void *image, unsigned int numOptions,
                    CUjit_option *options, void **optionValues)
{
  (void) numOptions, (void) options, (void) optionValues;
  return cuModuleLoadData (module, image);
}

CUresult
cuModuleLoadFatBinary (CUmodule *module, const void *image)
{
  return cuModuleLoadData (module, image);
}

CUresult
cuModuleLoad (CUmodule *module, const char *path)
{
  REQUIRE_CONTEXT (context);
  return load_file (module, path);
}

CUresult
cuModuleUnload (CUmodule module)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (module && module->kind == MODULE, CUDA_ERROR_INVALID_HANDLE);
  softgpu_drain (context->device);
  unload (module);
  return CUDA_SUCCESS;
}

CUresult
cuModuleGetFunction (CUfunction *function, CUmodule module, const char *name)
{
  return find_function (function, module, name);
}

static CUresult
find_variable (CUdeviceptr *start, size_t *bytes, struct CUmod_st *module, const char *name)
{
  REQUIRE_DRIVER ();
  REQUIRE (name && (start || bytes), CUDA_ERROR_INVALID_VALUE);
  REQUIRE (module && module->kind == MODULE, CUDA_ERROR_INVALID_HANDLE);
  struct variable *variable = module->variables;
  while (variable && strcmp (variable->name, name) != 0)
    variable = variable->next;
  REQUIRE (variable, CUDA_ERROR_NOT_FOUND);
  if (start)
    *start = variable->start;
  if (bytes)
    *bytes = variable->bytes;
  return CUDA_SUCCESS;
}

CUresult
cuModuleGetGlobal_v2 (CUdeviceptr *start, size_t *bytes, CUmodule module, const char *name)
{
  return find_variable (start, bytes, module, name);
}

CUresult
cuLibraryGetGlobal (CUdeviceptr *start, size_t *bytes, CUlibrary library, const char *name)
{
  return find_variable (start, bytes, (struct CUmod_st *) library, name);
}

CUresult
cuModuleGetFunctionCount (unsigned int *count, CUmodule module)
{
  REQUIRE_DRIVER ();
  REQUIRE (count && module && module->kind == MODULE, CUDA_ERROR_INVALID_VALUE);
  *count = module->count;
  return CUDA_SUCCESS;
}

CUresult
cuModuleGetLoadingMode (CUmoduleLoadingMode *mode)
{
  REQUIRE_DRIVER ();
  REQUIRE (mode, CUDA_ERROR_INVALID_VALUE);
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult
cuLibraryLoadData (CUlibrary *library, const void *code, CUjit_option *jitOptions,
                   void **jitOptionsValues, unsigned int numJitOptions,
                   CUlibraryOption *libraryOptions, void **libraryOptionValues,
                   unsigned int numLibraryOptions)
{
  (void) jitOptions, (void) jitOptionsValues, (void) numJitOptions;
  (void) libraryOptions, (void) libraryOptionValues, (void) numLibraryOptions;
  return load ((struct CUmod_st **) library, code);
}

CUresult
cuLibraryLoadFromFile (CUlibrary *library, const char *path, CUjit_option *jitOptions,
                       void **jitOptionsValues, unsigned int numJitOptions,
                       CUlibraryOption *libraryOptions, void **libraryOptionValues,
                       unsigned int numLibraryOptions)
{
  (void) jitOptions, (void) jitOptionsValues, (void) numJitOptions;
  (void) libraryOptions, (void) libraryOptionValues, (void) numLibraryOptions;
  return load_file ((struct CUmod_st **) library, path);
}

CUresult
cuLibraryUnload (CUlibrary library)
{
  REQUIRE_DRIVER ();
  struct CUmod_st *module = (struct CUmod_st *) library;
  REQUIRE (module && module->kind == MODULE, CUDA_ERROR_INVALID_HANDLE);
  unload (module);
  return CUDA_SUCCESS;
}

CUresult
cuLibraryGetKernel (CUkernel *kernel, CUlibrary library, const char *name)
{
  return find_function ((struct CUfunc_st **) kernel, (struct CUmod_st *) library, name);
}

CUresult
cuLibraryGetModule (CUmodule *module, CUlibrary library)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (module && library, CUDA_ERROR_INVALID_VALUE);
  *module = (CUmodule) library;
  return CUDA_SUCCESS;
}

CUresult
cuKernelGetFunction (CUfunction *function, CUkernel kernel)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (function && kernel, CUDA_ERROR_INVALID_VALUE);
  *function = (CUfunction) kernel;
  return CUDA_SUCCESS;
}
