/* Tables that stubs.py generates from the headers.  */

#pragma once

#include <stddef.h>

struct error_name
{
  int code;
  const char *name; /* "CUDA_ERROR_OUT_OF_MEMORY" */
  const char *text; /* "out of memory" */
};
extern const struct error_name softgpu_errors[];
extern const size_t softgpu_error_count;
extern const struct error_name softgpu_nvml_errors[];
extern const size_t softgpu_nvml_error_count;

/* One version of one entry point; sorted by symbol, then by version.  */
struct entry_point
{
  const char *symbol; /* as cuGetProcAddress is asked for it: no version, no _ptsz */
  int since;          /* CUDA version that brought it */
  void (*function) (void);
  void (*per_thread) (void); /* its _ptds or _ptsz form, else the same */
};
extern const struct entry_point softgpu_entry_points[];
extern const size_t softgpu_entry_point_count;
