/* Libraries: modules that belong to no context. Each context where one is looked into gets its own
   memory of it.  */

#include "module/module.h"

static struct CUmod_st *
module_of (CUlibrary library)
{
  return (struct CUmod_st *) library;
}

CUresult
cuLibraryLoadData (CUlibrary *library, const void *code, CUjit_option *jitOptions,
                   void **jitOptionsValues, unsigned int numJitOptions,
                   CUlibraryOption *libraryOptions, void **libraryOptionValues,
                   unsigned int numLibraryOptions)
{
  (void) jitOptions, (void) jitOptionsValues, (void) numJitOptions;
  (void) libraryOptions, (void) libraryOptionValues, (void) numLibraryOptions;
  return softgpu_load ((struct CUmod_st **) library, code);
}

CUresult
cuLibraryLoadFromFile (CUlibrary *library, const char *path, CUjit_option *jitOptions,
                       void **jitOptionsValues, unsigned int numJitOptions,
                       CUlibraryOption *libraryOptions, void **libraryOptionValues,
                       unsigned int numLibraryOptions)
{
  (void) jitOptions, (void) jitOptionsValues, (void) numJitOptions;
  (void) libraryOptions, (void) libraryOptionValues, (void) numLibraryOptions;
  return softgpu_load_file ((struct CUmod_st **) library, path);
}

CUresult
cuLibraryUnload (CUlibrary library)
{
  REQUIRE_ARGUMENTS (module_valid (module_of (library)));
  softgpu_unload (module_of (library));
  return CUDA_SUCCESS;
}

CUresult
cuLibraryGetKernel (CUkernel *kernel, CUlibrary library, const char *name)
{
  REQUIRE_DRIVER ();
  REQUIRE (module_valid (module_of (library)), CUDA_ERROR_INVALID_HANDLE);
  return softgpu_find_function ((struct CUfunc_st **) kernel, module_of (library), name);
}

CUresult
cuLibraryGetGlobal (CUdeviceptr *start, size_t *bytes, CUlibrary library, const char *name)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (module_valid (module_of (library)), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE_SUCCESS (softgpu_find_variable (start, bytes, module_of (library), name));
  REQUIRE_SUCCESS (softgpu_place (module_of (library), NULL));
  return softgpu_find_variable (start, bytes, module_of (library), name);
}

CUresult
cuLibraryGetModule (CUmodule *module, CUlibrary library)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (module, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (module_valid (module_of (library)), CUDA_ERROR_INVALID_HANDLE);
  *module = module_of (library);
  return softgpu_place (*module, NULL);
}

CUresult
cuKernelGetFunction (CUfunction *function, CUkernel kernel)
{
  REQUIRE_CONTEXT (context);
  CUfunction found = (CUfunction) kernel;
  REQUIRE (function, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (function_valid (found), CUDA_ERROR_INVALID_HANDLE);
  *function = found;
  REQUIRE_SUCCESS (softgpu_place (found->module, NULL));
  return softgpu_place (found->module, found->name);
}

CUresult
cuKernelGetLibrary (CUlibrary *library, CUkernel kernel)
{
  REQUIRE_DRIVER ();
  CUfunction found = (CUfunction) kernel;
  REQUIRE (library, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (function_valid (found), CUDA_ERROR_INVALID_HANDLE);
  *library = (CUlibrary) found->module;
  return CUDA_SUCCESS;
}
