/* Kernels, as a launch knows them.  */

#pragma once

#include "driver/driver.h"

/* A kernel does nothing but take its time. A library's CUkernel is the same thing, as a real
   driver too takes a CUkernel where a CUfunction is asked for.  */
struct CUfunc_st
{
  uint32_t kind;
  struct CUmod_st *module;
  struct CUfunc_st *next;
  uint64_t time_ns;
  int time_param;         /* index of the u64 parameter that holds the time; -1: time_ns does */
  uint64_t width_percent; /* of the GPU; 0: as many threads as the launch has */
  int width_param;        /* index of the u64 parameter that holds it; -1: width_percent does */
  char name[];
};

static inline bool
function_valid (CUfunction function)
{
  return function && function->kind == FUNCTION;
}

/* Whether a launch keeps to the device's attributes.  */
bool softgpu_shape_fits (const unsigned grid[3], const unsigned block[3], unsigned shared);

/* What one launch takes of the GPU.  */
struct kernel_cost
{
  uint64_t time_ns;
  uint64_t percent; /* the width that the module states; 0: none */
  uint32_t width;   /* in threads */
};

CUresult softgpu_kernel_cost (CUfunction function, const unsigned grid[3], const unsigned block[3],
                              void **params, void **extra, struct kernel_cost *cost);
