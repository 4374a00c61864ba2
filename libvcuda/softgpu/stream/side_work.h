/* Work in a stream that is none of the device's: copies over the bus, and host functions. What
   comes after it in the stream waits, and the device is idle meanwhile or does other streams' work.
 */

#ifndef SOFTGPU_SIDE_WORK_H
#define SOFTGPU_SIDE_WORK_H

#include "driver/driver.h"

/* Keeps STREAM waiting for as long as the bus takes for BYTES (`softgpu create --bus-rate`), once
   what was submitted to it is done.  */
CUresult softgpu_side_copy (CUstream stream, size_t bytes);

/* Has a thread call RUN once what was submitted to STREAM is done.  */
CUresult softgpu_side_run (CUstream stream, void (*run) (void *), void *data);

/* Sleeps until STREAM has no such work; a default stream stands for all of DEVICE's.  */
void softgpu_side_wait (CUstream stream, CUdevice device);
bool softgpu_side_busy (CUstream stream, CUdevice device);

#endif
