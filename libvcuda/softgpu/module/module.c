/* Modules: kernels and variables of the current context.  */

#include "module/module.h"
#include "stream/streams.h"

CUresult
cuModuleLoadData (CUmodule *module, const void *image)
{
  REQUIRE_CONTEXT (context);
  return softgpu_load (module, image);
}

CUresult
cuModuleLoadDataEx (CUmodule *module, const void *image, unsigned int numOptions,
                    CUjit_option *options, void **optionValues)
{
  (void) numOptions, (void) options, (void) optionValues;
  return cuModuleLoadData (module, image);
}

ALSO_NAMED (cuModuleLoadFatBinary, cuModuleLoadData);

CUresult
cuModuleLoad (CUmodule *module, const char *path)
{
  REQUIRE_CONTEXT (context);
  return softgpu_load_file (module, path);
}

CUresult
cuModuleUnload (CUmodule module)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (module_valid (module), CUDA_ERROR_INVALID_VALUE);
  softgpu_drain (context->device);
  softgpu_unload (module);
  return CUDA_SUCCESS;
}

CUresult
cuModuleGetFunction (CUfunction *function, CUmodule module, const char *name)
{
  REQUIRE_ARGUMENTS (module_valid (module));
  REQUIRE_SUCCESS (softgpu_find_function (function, module, name));
  return valid_context (softgpu_current_context ()) ? softgpu_place (module, name) : CUDA_SUCCESS;
}

CUresult
cuModuleGetGlobal_v2 (CUdeviceptr *start, size_t *bytes, CUmodule module, const char *name)
{
  REQUIRE_ARGUMENTS (module_valid (module));
  return softgpu_find_variable (start, bytes, module, name);
}

CUresult
cuModuleGetFunctionCount (unsigned int *count, CUmodule module)
{
  REQUIRE_ARGUMENTS (count);
  REQUIRE (module_valid (module), CUDA_ERROR_INVALID_HANDLE);
  *count = module->count;
  return CUDA_SUCCESS;
}

CUresult
cuModuleGetLoadingMode (CUmoduleLoadingMode *mode)
{
  REQUIRE_ARGUMENTS (mode);
  *mode = softgpu_loads_lazily () ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}
