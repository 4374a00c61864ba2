/* Images of modules and libraries: reading one, and what it holds.  */

#include "module/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
  function->width_param = -1;
  memcpy (function->name, name, length);
  function->next = module->functions;
  module->functions = function;
  module->count++;
  return function;
}

void
softgpu_unload (struct CUmod_st *module)
{
  for (CUfunction next, function = module->functions; function; function = next)
    {
      next = function->next;
      softgpu_retire (function, sizeof *function + strlen (function->name) + 1);
    }
  softgpu_free_variables (module);
  softgpu_retire (module, sizeof *module);
}

CUresult
softgpu_load (struct CUmod_st **pmodule, const void *image)
{
  REQUIRE_ARGUMENTS (pmodule && image);
  struct CUmod_st *module = softgpu_new_record (sizeof *module);
  REQUIRE (module, CUDA_ERROR_OUT_OF_MEMORY);
  module->kind = MODULE;
  CUresult rc = CUDA_SUCCESS;
  /* ELF, fat binary, and the wrapper that nvcc puts around one.  */
  const unsigned elf = 0x464c457f, fat = 0xba55ed50, wrapper = 0x466243b1;
  if (softgpu_is_ptx (image))
    rc = softgpu_read_ptx (module, image);
  else
    {
      unsigned magic;
      memcpy (&magic, image, sizeof magic);
      module->any_name = magic == elf || magic == fat || magic == wrapper;
      if (!module->any_name)
        rc = CUDA_ERROR_INVALID_IMAGE;
      else if (magic == elf)
        rc = softgpu_read_cubin (module, image);
    }
  if (rc == CUDA_SUCCESS && valid_context (softgpu_current_context ()))
    rc = softgpu_place (module, NULL);
  if (rc != CUDA_SUCCESS)
    softgpu_unload (module);
  else
    *pmodule = module;
  return rc;
}

CUresult
softgpu_load_file (struct CUmod_st **pmodule, const char *path)
{
  REQUIRE_ARGUMENTS (pmodule && path);
  FILE *file = fopen (path, "rbe");
  REQUIRE (file, CUDA_ERROR_FILE_NOT_FOUND);
  struct stat status;
  size_t size = fstat (fileno (file), &status) == 0 ? (size_t) status.st_size : 0;
  char *image = calloc (1, size + 8); /* the zeroes end a PTX text */
  CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
  if (image)
    rc = fread (image, 1, size, file) == size ? softgpu_load (pmodule, image)
                                              : CUDA_ERROR_INVALID_IMAGE;
  fclose (file);
  free (image);
  return rc;
}

CUresult
softgpu_find_function (struct CUfunc_st **pfunction, struct CUmod_st *module, const char *name)
{
  REQUIRE (pfunction && name && *name, CUDA_ERROR_INVALID_VALUE);
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
