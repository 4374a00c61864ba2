/* Modules and the kernels in them.  */

#ifndef SOFTGPU_MODULE_H
#define SOFTGPU_MODULE_H

#include "driver.h"

/* A kernel does nothing but take its time. A library's CUkernel is the same thing, as a real
   driver too takes a CUkernel where a CUfunction is asked for.  */
struct CUfunc_st
{
  uint32_t kind;
  struct CUmod_st *module;
  struct CUfunc_st *next;
  uint64_t time_ns;
  int time_param; /* index of the u64 parameter that holds the time; -1: time_ns does */
  char name[];
};

/* A .global or .const variable: real device memory, on the account while the module is loaded.  */
struct variable
{
  struct variable *next;
  CUdeviceptr start; /* 0: it has no memory yet */
  size_t bytes;
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

static inline bool
function_valid (CUfunction function)
{
  return function && function->kind == FUNCTION;
}

/* Reads an image, from memory or a file. Without a current context its variables get no memory yet.
 */
CUresult softgpu_load (struct CUmod_st **module, const void *image);
CUresult softgpu_load_file (struct CUmod_st **module, const char *path);
void softgpu_unload (struct CUmod_st *module);

/* Gives the variables that have no memory yet theirs, in the current context.  */
CUresult softgpu_place_variables (struct CUmod_st *module);

CUresult softgpu_find_function (CUfunction *function, struct CUmod_st *module, const char *name);
CUresult softgpu_find_variable (CUdeviceptr *start, size_t *bytes, struct CUmod_st *module,
                                const char *name);

/* Reads the kernels of a PTX text into MODULE.  */
CUresult softgpu_read_ptx (struct CUmod_st *module, const char *text);

CUresult softgpu_add_variable (struct CUmod_st *module, const char *name, size_t length,
                               size_t bytes);

CUfunction softgpu_add_function (struct CUmod_st *module, const char *name, size_t length);

#endif
