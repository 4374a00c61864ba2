/* A container under MPS: its processes are clients of the daemon that the host keeps.  */

#pragma once

#include <cuda.h>

/* Before the driver's cuInit: sets the variables by which the driver finds the daemon and takes the
   container's limits, whatever the program had set. Without a daemon the driver would go on without
   limits: then CUDA_ERROR_MPS_CONNECTION_FAILED.  */
CUresult vcuda_mps_join (void);
