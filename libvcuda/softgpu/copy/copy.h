#ifndef SOFTGPU_COPY_H
#define SOFTGPU_COPY_H

#include "driver/driver.h"

/* Whether COPY's ends are what a copy on STREAM may touch; of a captured one, once its graph runs.
 */
CUresult softgpu_check_copy (const CUDA_MEMCPY3D *copy, CUstream stream);

/* Carries out COPY, now; the time that it takes comes on STREAM.  */
CUresult softgpu_copy (const CUDA_MEMCPY3D *copy, CUstream stream);

/* The same on STREAM, or into its capture. COPY may be NULL, and is answered.  */
CUresult softgpu_queue_copy (const CUDA_MEMCPY3D *copy, CUstream stream);

/* The same when all the work before it is done.  */
CUresult softgpu_copy_and_wait (const CUDA_MEMCPY3D *copy);

#endif
