/* The kernel's dmem controller, which accounts for device memory by cgroup from Linux 6.14 on, as a
   tree of files: a cgroup's folder has `dmem.max` and `dmem.min` if its parent enables dmem.  */

#pragma once

#include "nvml/monitor.h"

/* Whether dmem accounts for the cgroup of FOLDER: the hierarchy lists it in `cgroup.controllers`.
 */
bool softgpu_dmem_accounts (const char *folder);

/* Writes the limits in bytes into the files of FOLDER, and adds the change of SOFT to each cgroup
   above it that has the files: the kernel protects memory only if all above reserve it too.
   NVML_ERROR_NOT_FOUND: its parent does not enable dmem.  */
nvmlReturn_t softgpu_dmem_set (const char *folder, unsigned pci_bus, uint64_t soft, uint64_t hard);
