/* The UUIDs of devices.  */

#pragma once

#include "driver/driver.h"

/* TEXT is as NVML prints it: "GPU-" or "MIG-", and 32 hexadecimal digits with dashes between.  */
CUresult softgpu_read_uuid (CUuuid *uuid, const char *text);
