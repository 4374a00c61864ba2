/* The container's GPU of an NVML handle.  */

#pragma once

#include "real.h"

/* Sets *GPU to the limits entry of DEVICE, or to -1: this container has no share of it. An error is
   NVML's own: an invalid handle, a lost GPU.  */
nvmlReturn_t vcuda_nvml_gpu (nvmlDevice_t device, int *gpu);
