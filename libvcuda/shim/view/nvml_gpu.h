/* Which of the container's GPUs a handle of NVML is.  */

#ifndef VCUDA_NVML_GPU_H
#define VCUDA_NVML_GPU_H

#include "real.h"

/* Sets *GPU to the limits entry of DEVICE, or to -1 when this container has no slice of it. An
   error is NVML's own: a handle that is none, a GPU that is lost.  */
nvmlReturn_t vcuda_nvml_gpu (nvmlDevice_t device, int *gpu);

#endif
