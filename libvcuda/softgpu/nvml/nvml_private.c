/* NVML: the private table that nvidia-smi asks for, as far as nvidia-smi of 535 and 550 needs it.
   Its process lists name every process that uses the device, as the public ones do.  */

#include <string.h>

#include "nvml/monitor.h"

nvmlReturn_t nvmlInternalGetExportTable (const void **table, const void *id);

#define SLOTS 251

struct private_process
{
  nvmlProcessDetail_v1_t detail;
  char name[4096];
};

static nvmlReturn_t
processes (nvmlDevice_t device, unsigned *count, struct private_process *entries)
{
  struct process list[SOFTGPU_MAX_SLOTS];
  REQUIRE_SUCCESS (softgpu_list_processes (device, count, entries, list));
  for (unsigned i = 0; i < *count; i++)
    {
      memset (&entries[i], 0, sizeof entries[i]);
      entries[i].detail = (nvmlProcessDetail_v1_t){ .pid = list[i].pid,
                                                    .usedGpuMemory = list[i].held_bytes,
                                                    .gpuInstanceId = 0xffffffff,
                                                    .computeInstanceId = 0xffffffff };
      nvmlSystemGetProcessName (list[i].pid, entries[i].name, sizeof entries[i].name);
    }
  return NVML_SUCCESS;
}

/* What nvidia-smi gets on without.  */
static nvmlReturn_t
not_supported (void)
{
  return NVML_ERROR_NOT_SUPPORTED;
}

#define REST (void *) not_supported

static const struct
{
  size_t bytes;
  void *function[SLOTS - 1];
} private_table = {
  .bytes = SLOTS * sizeof (void *),
  .function = {
    [0 ... 70] = REST,
    [72 - 1] = (void *) nvmlDeviceGetArchitecture,
    [72 ... 79] = REST,
    [81 - 1] = (void *) nvmlDeviceGetHandleByIndex_v2, /* called with flags too */
    [81 ... 211] = REST,
    [213 - 1 ... 215 - 1] = (void *) processes,
    [215 ... 228] = REST,
    [230 - 1] = (void *) nvmlDeviceGetMaxPcieLinkGeneration,
    [230 ... SLOTS - 2] = REST,
  },
};

__attribute__ ((visibility ("default"))) nvmlReturn_t
nvmlInternalGetExportTable (const void **table, const void *id)
{
  static const unsigned char known[16] = { 0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                           0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4 };
  REQUIRE (table && id && !memcmp (id, known, sizeof known), NVML_ERROR_INVALID_ARGUMENT);
  *table = &private_table;
  return NVML_SUCCESS;
}
