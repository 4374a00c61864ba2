/* A process as a client of MPS.  */

#pragma once

#include "driver/driver.h"

/* Asks the control daemon for its server, before the process has a device. CUDA_SUCCESS without a
   daemon too: the process then goes on without MPS. With one, the process's GPUs are those of the
   server that it may open.  */
CUresult softgpu_join_mps (void);

/* In the child of a fork: the connection is the parent's.  */
void softgpu_leave_mps (void);
