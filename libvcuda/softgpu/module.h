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
  CUdeviceptr start;
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

/* Reads the kernels of a PTX text into MODULE.  */
CUresult softgpu_read_ptx (struct CUmod_st *module, const char *text);

CUresult softgpu_add_variable (struct CUmod_st *module, const char *name, size_t length,
                               size_t bytes);

CUfunction softgpu_add_function (struct CUmod_st *module, const char *name, size_t length);

#endif
