/* Attributes of kernels.  */

#include "module/module.h"

CUresult
cuFuncGetName (const char **name, CUfunction function)
{
  REQUIRE_DRIVER ();
  REQUIRE (name && function_valid (function), CUDA_ERROR_INVALID_VALUE);
  *name = function->name;
  return CUDA_SUCCESS;
}

CUresult
cuKernelGetName (const char **name, CUkernel kernel)
{
  return cuFuncGetName (name, (CUfunction) kernel);
}

CUresult
cuFuncGetModule (CUmodule *module, CUfunction function)
{
  REQUIRE_DRIVER ();
  REQUIRE (module && function_valid (function), CUDA_ERROR_INVALID_VALUE);
  *module = function->module;
  return CUDA_SUCCESS;
}

CUresult
cuFuncGetAttribute (int *value, CUfunction_attribute attribute, CUfunction function)
{
  REQUIRE_DRIVER ();
  REQUIRE (value && attribute < CU_FUNC_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (function_valid (function), CUDA_ERROR_INVALID_HANDLE);
  static const int values[CU_FUNC_ATTRIBUTE_MAX] = {
    [CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024,
    [CU_FUNC_ATTRIBUTE_NUM_REGS] = 32,
    [CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90,
    [CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90,
    [CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 48 << 10,
  };
  *value = values[attribute];
  return CUDA_SUCCESS;
}

CUresult
cuKernelGetAttribute (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice dev)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_device (dev), CUDA_ERROR_INVALID_DEVICE);
  return cuFuncGetAttribute (value, attribute, (CUfunction) kernel);
}

CUresult
cuFuncSetAttribute (CUfunction function, CUfunction_attribute attribute, int value)
{
  REQUIRE_DRIVER ();
  (void) value;
  REQUIRE (attribute < CU_FUNC_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
  return function_valid (function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult
cuFuncSetCacheConfig (CUfunction function, CUfunc_cache config)
{
  REQUIRE_DRIVER ();
  REQUIRE (function_valid (function) && (unsigned) config <= CU_FUNC_CACHE_PREFER_EQUAL,
           CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

CUresult
cuFuncIsLoaded (CUfunctionLoadingState *state, CUfunction function)
{
  REQUIRE_DRIVER ();
  REQUIRE (state, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (function_valid (function), CUDA_ERROR_INVALID_HANDLE);
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult
cuFuncLoad (CUfunction function)
{
  REQUIRE_DRIVER ();
  return function_valid (function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
