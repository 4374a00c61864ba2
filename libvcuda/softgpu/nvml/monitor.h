/* Types and functions that all parts of the software libnvidia-ml.so.1 share.  */

#pragma once

/* Every version of every function under its own name; exported are those that nvml.h declares.  */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

#include "engine/device_time.h"
#include "mig/instance.h"
#include "state/attach.h"
#include "state/pid.h"
#include "state/require.h"

/* A GPU, a MIG device, or a GPU instance with its compute instance.  */
struct nvmlDevice_st
{
  unsigned gpu; /* its index in the state file */
  unsigned index;
};

struct monitor
{
  _Atomic unsigned users; /* nvmlInit calls that no nvmlShutdown answers */
  struct attachment tie;
  struct softgpu_paths paths;
  unsigned parts; /* entries of the state behind its GPUs */
  /* The GPUs that this process may open, then an entry for each MIG device that there can be.  */
  struct nvmlDevice_st device[SOFTGPU_MAX_ENTRIES];
};

extern struct monitor monitor;

/* Returns from the calling function unless NVML is initialised in this very process.  */
#define REQUIRE_MONITOR() REQUIRE (monitor.users, NVML_ERROR_UNINITIALIZED)

/* The same, and unless the arguments are VALID.  */
#define REQUIRE_ARGUMENTS(valid)                                                                   \
  REQUIRE_MONITOR ();                                                                              \
  REQUIRE (valid, NVML_ERROR_INVALID_ARGUMENT)

/* Returns unless DEVICE is one that this process may use.  */
#define REQUIRE_DEVICE(device)                                                                     \
  REQUIRE_ARGUMENTS (softgpu_valid (device));                                                      \
  REQUIRE (!gpu_of (device)->lost, NVML_ERROR_GPU_IS_LOST)

/* The same, and unless the other arguments are VALID.  */
#define REQUIRE_DEVICE_AND(device, valid)                                                          \
  REQUIRE_DEVICE (device);                                                                         \
  REQUIRE (valid, NVML_ERROR_INVALID_ARGUMENT)

/* A function that answers with VALUE, a constant or of the device's state.  */
#define ANSWER(function, type, value)                                                              \
  nvmlReturn_t nvmlDevice##function (nvmlDevice_t device, type *answer)                            \
  {                                                                                                \
    REQUIRE_DEVICE_AND (device, answer);                                                           \
    *answer = (value);                                                                             \
    return NVML_SUCCESS;                                                                           \
  }

static inline bool
softgpu_valid (nvmlDevice_t device)
{
  if (device < monitor.device || device >= monitor.device + monitor.tie.gpu_count + monitor.parts)
    return false;
  return device < monitor.device + monitor.tie.gpu_count
         || softgpu_may_open (monitor.tie.state, monitor.paths.devices, device->gpu);
}

static inline struct softgpu_gpu *
gpu_of (nvmlDevice_t device)
{
  return &monitor.tie.state->gpu[device->gpu];
}

static inline bool
softgpu_is_mig (nvmlDevice_t device)
{
  return gpu_of (device)->parent != 0;
}

/* Writes TEXT to OUT of LENGTH bytes.  */
nvmlReturn_t softgpu_put_text (char *out, unsigned length, const char *text);

/* Where the device with the bus number BUS sits.  */
nvmlPciInfo_t softgpu_pci_at (unsigned bus);

struct process
{
  unsigned pid; /* in the caller's pid namespace */
  uint64_t held_bytes;
  unsigned percent; /* of the GPU's last second */
};

/* Lists the processes with a context on DEVICE for a call with *COUNT ENTRIES; *COUNT gets how many
   there are.  */
nvmlReturn_t softgpu_list_processes (nvmlDevice_t device, unsigned *count, const void *entries,
                                     struct process list[SOFTGPU_MAX_SLOTS]);
