/* The fuzz target's driver: device, context and memory, counted to the byte.  */

#include <stdio.h>
#include <string.h>

#include "entry/gate.h"
#include "fuzz.h"

/* Too high for the shim's table of devices, so each look-up reads the page.  */
#define DEVICE 100

uint64_t driver_held;
CUdeviceptr driver_pieces[MOST_PIECES];

static size_t piece_bytes[MOST_PIECES];
static CUresult
get_current (CUcontext *current)
{
  *current = DRIVER_CONTEXT;
  return CUDA_SUCCESS;
}

static CUresult
get_device (CUdevice *device)
{
  *device = DEVICE;
  return CUDA_SUCCESS;
}

static CUresult
get_uuid (CUuuid *uuid, CUdevice device)
{
  fuzz_meanwhile ();
  memset (uuid->bytes, device == DEVICE ? 1 : 2, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

static CUresult
push_current (CUcontext which)
{
  (void) which;
  return CUDA_SUCCESS;
}

static CUresult
pop_current (CUcontext *which)
{
  return get_current (which);
}

static CUresult
total_mem (size_t *bytes, CUdevice device)
{
  (void) device;
  *bytes = (size_t) 1 << 40;
  return CUDA_SUCCESS;
}

static CUresult
mem_info (size_t *left, size_t *total)
{
  fuzz_meanwhile ();
  *total = (size_t) 1 << 40;
  *left = *total - (driver_held < *total ? driver_held : *total);
  return CUDA_SUCCESS;
}

static CUresult
mem_alloc (CUdeviceptr *pointer, size_t bytes)
{
  fuzz_meanwhile ();
  for (int i = 0; i < MOST_PIECES; i++)
    if (!driver_pieces[i])
      {
        *pointer = driver_pieces[i] = (CUdeviceptr) (i + 1) << 20;
        piece_bytes[i] = bytes;
        driver_held += bytes;
        return CUDA_SUCCESS;
      }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult
mem_alloc_managed (CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
  (void) flags;
  return mem_alloc (pointer, bytes);
}

static CUresult
attribute (int *value, CUdevice_attribute which, CUdevice device)
{
  (void) which, (void) device;
  *value = 512;
  return CUDA_SUCCESS;
}

static CUresult
mem_free (CUdeviceptr pointer)
{
  fuzz_meanwhile ();
  for (int i = 0; i < MOST_PIECES; i++)
    if (pointer && driver_pieces[i] == pointer)
      {
        driver_pieces[i] = 0;
        driver_held -= piece_bytes[i];
        return CUDA_SUCCESS;
      }
  return CUDA_ERROR_INVALID_VALUE;
}

/* The current context is always DRIVER_CONTEXT.  */
static CUresult
ctx_create (CUcontext *made, unsigned flags, CUdevice device)
{
  static size_t number = (size_t) DRIVER_CONTEXT;
  (void) flags, (void) device;
  *made = (CUcontext) (number += 64);
  return CUDA_SUCCESS;
}

static CUresult
ctx_destroy (CUcontext which)
{
  if (which != DRIVER_CONTEXT)
    return CUDA_SUCCESS;
  driver_forget_events ();
  memset (driver_pieces, 0, sizeof driver_pieces);
  driver_held = 0;
  return CUDA_SUCCESS;
}

static nvmlReturn_t
nvml_uuid (nvmlDevice_t device, char *uuid, unsigned length)
{
  (void) device;
  snprintf (uuid, length, "GPU-01010101-0101-0101-0101-010101010101");
  return NVML_SUCCESS;
}

static nvmlReturn_t
nvml_memory (nvmlDevice_t device, nvmlMemory_t *memory)
{
  (void) device;
  *memory = (nvmlMemory_t){ .total = 1ull << 40, .free = 1ull << 39, .used = 1ull << 39 };
  return NVML_SUCCESS;
}

static nvmlReturn_t
nvml_utilization (nvmlDevice_t device, nvmlUtilization_t *utilization)
{
  (void) device;
  *utilization = (nvmlUtilization_t){ 100, 100 };
  return NVML_SUCCESS;
}

void
driver_install (void)
{
  driver_install_time ();
  real.cuCtxGetCurrent = get_current;
  real.cuCtxGetDevice = get_device;
  real.cuDeviceGetUuid_v2 = get_uuid;
  real.cuCtxPushCurrent_v2 = push_current;
  real.cuCtxPopCurrent_v2 = pop_current;
  real.cuDeviceTotalMem_v2 = total_mem;
  real.cuMemGetInfo_v2 = mem_info;
  real.cuMemAlloc_v2 = mem_alloc;
  real.cuMemAllocManaged = mem_alloc_managed;
  real.cuDeviceGetAttribute = attribute;
  real.cuMemFree_v2 = mem_free;
  real.cuCtxCreate_v2 = ctx_create;
  real.cuCtxDestroy_v2 = ctx_destroy;
  real.nvmlDeviceGetUUID = nvml_uuid;
  real.nvmlDeviceGetMemoryInfo = nvml_memory;
  real.nvmlDeviceGetUtilizationRates = nvml_utilization;
}

#define GATED(name) { VCUDA_INDEX_##name, (void **) &real.name, NULL }

void
driver_gate (bool gated)
{
  static struct
  {
    unsigned index;
    void **pointer, *bare;
  } of[] = {
    GATED (cuMemAlloc_v2),  GATED (cuMemFree_v2),     GATED (cuMemGetInfo_v2),
    GATED (cuCtxCreate_v2), GATED (cuCtxDestroy_v2),  GATED (cuLaunchKernel),
    GATED (cuEventQuery),   GATED (cuCtxSynchronize),
  };
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    {
      if (!of[i].bare)
        of[i].bare = *of[i].pointer;
      *of[i].pointer = gated ? vcuda_gate_of_entry (of[i].index, of[i].bare) : of[i].bare;
    }
}
