/* What a GPU's memory holds. Physical memory lies on the GPU for as long as it lives; managed
   memory lies there as far as it fits beside, and the driver keeps the rest on the host.  */

#pragma once

#include <stdbool.h>

#include "state/state.h"

struct softgpu_account
{
  uint64_t physical; /* bytes, of all live processes */
  uint64_t managed;
  uint64_t resident; /* of the managed ones: on the GPU */
};

/* Of GPU, an index of STATE. With the lock held; what the dead held counts until they are reaped.
 */
struct softgpu_account softgpu_account (const struct softgpu_state *state, unsigned gpu);

/* What of one process's memory lies on the GPU. Which pages had to go is not modelled: each process
   keeps the same part of its own.  */
uint64_t softgpu_on_device (const struct softgpu_account *account,
                            const struct softgpu_slot_gpu *use);

/* The limit that stands for a pid namespace on GPU; NULL: none does. With the lock held.  */
struct softgpu_limit *softgpu_limit_of (struct softgpu_state *state, unsigned gpu,
                                        uint64_t pid_namespace);

/* Physical memory of the live processes of a pid namespace on GPU. With the lock held.  */
uint64_t softgpu_held_by (const struct softgpu_state *state, unsigned gpu, uint64_t pid_namespace);

/* Limits what a process of a pid namespace is shown of GPU's memory to what its cgroup has. USED:
   bytes of GPU that are in use. With the lock held.  */
void softgpu_show_cgroup (struct softgpu_state *state, unsigned gpu, uint64_t pid_namespace,
                          uint64_t *total, uint64_t *used);

/* Whether GPU has room for BYTES more of a process of a pid namespace. With the lock held.  */
bool softgpu_has_room (struct softgpu_state *state, unsigned gpu, uint64_t pid_namespace,
                       uint64_t bytes);
