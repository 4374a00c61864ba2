/* Names and texts of CUDA's error codes; the table is generated from cuda.h.  */

#include "driver/driver.h"
#include "driver/tables.h"

static const struct error_name *
find (CUresult error)
{
  for (size_t i = 0; i < softgpu_error_count; i++)
    if (softgpu_errors[i].code == (int) error)
      return &softgpu_errors[i];
  return NULL;
}

#define ANSWER(function, member)                                                                   \
  CUresult cuGetError##function (CUresult error, const char **text)                                \
  {                                                                                                \
    REQUIRE (text, CUDA_ERROR_INVALID_VALUE);                                                      \
    const struct error_name *found = find (error);                                                 \
    *text = found ? found->member : NULL;                                                          \
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;                                        \
  }

ANSWER (Name, name)
ANSWER (String, text)
