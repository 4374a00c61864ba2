/* Modules and the kernels in them.  */

#pragma once

#include "driver/function.h"

/* A .global or .const variable, or a section of compiled code: device memory, on the account of
   each context that the module is in.  */
struct variable
{
  struct variable *next;
  struct placement *placements;
  size_t bytes;
  bool code; /* loaded with its kernel, where CUDA_MODULE_LOADING is LAZY */
  char name[];
};

/* CUlibrary is the same thing.  */
struct CUmod_st
{
  uint32_t kind;
  bool any_name; /* compiled code, which is not read: every name is there */
  struct CUfunc_st *functions;
  unsigned count;
  struct variable *variables;
};

static inline bool
module_valid (const struct CUmod_st *module)
{
  return module && module->kind == MODULE;
}

/* Reads an image, from memory or a file. Without a current context it gets no memory yet.  */
CUresult softgpu_load (struct CUmod_st **module, const void *image);
CUresult softgpu_load_file (struct CUmod_st **module, const char *path);
void softgpu_unload (struct CUmod_st *module);

/* Gives what has no memory yet in the current context its memory there: the code of KERNEL or, if
   that is NULL, variables, and code where that is not loaded lazily.  */
CUresult softgpu_place (struct CUmod_st *module, const char *kernel);

/* Gives back all that the module has.  */
void softgpu_free_variables (struct CUmod_st *module);

bool softgpu_loads_lazily (void);

CUresult softgpu_find_function (CUfunction *function, struct CUmod_st *module, const char *name);
CUresult softgpu_find_variable (CUdeviceptr *start, size_t *bytes, struct CUmod_st *module,
                                const char *name);

/* Whether the first directive of IMAGE, after blanks and comments, is the version of PTX.  */
bool softgpu_is_ptx (const char *image);

/* Reads the kernels of a PTX text into MODULE.  */
CUresult softgpu_read_ptx (struct CUmod_st *module, const char *text);

/* Reads what compiled code, an ELF image, has of sections that take device memory into MODULE.  */
CUresult softgpu_read_cubin (struct CUmod_st *module, const void *image);

CUresult softgpu_add_variable (struct CUmod_st *module, const char *name, size_t length,
                               size_t bytes, bool code);

CUfunction softgpu_add_function (struct CUmod_st *module, const char *name, size_t length);
