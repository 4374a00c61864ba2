/* Copies of boxes.  */

#pragma once

#include "driver/driver.h"

/* Whether a copy on STREAM may access both ends of COPY; if STREAM is captured, when the graph
 * runs.
 */
CUresult softgpu_check_copy (const CUDA_MEMCPY3D *copy, CUstream stream);

/* Moves the bytes of COPY now, and queues the time that this takes on STREAM.  */
CUresult softgpu_copy (const CUDA_MEMCPY3D *copy, CUstream stream);
