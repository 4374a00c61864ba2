/* Copies between the GPU and the host, or another GPU, and the time that the bus takes for them
   (`softgpu create --bus-rate`).  */

#pragma once

#include "driver/driver.h"

/* Queues a copy of BYTES on STREAM.  */
CUresult softgpu_bus_copy (CUstream stream, size_t bytes, bool to_gpu);

/* Sleeps until the last such copy on a default stream is done.  */
void softgpu_wait_for_copy (CUdevice device);
