/* What a client of MPS and the control daemon say to each other, over the socket `control` of the
   pipe directory: one packet each way, then the connection stays open for the client's life.
   NVIDIA's own protocol is not public; this one is the software GPU's.  */

#pragma once

#include "state/state.h"

#define MPS_DEFAULT_PIPES "/tmp/nvidia-mps"
#define MPS_CONTROL "control"
#define MPS_PRIVILEGED "control_privileged"

#define MPS_PARTITION 96
#define MPS_HELLO 0x4f4c4548u
#define MPS_ANSWER 0x52534e41u

struct mps_hello
{
  uint32_t magic;
  uint32_t slot;                 /* of the client */
  char partition[MPS_PARTITION]; /* what CUDA_MPS_SM_PARTITION names; "": nothing */
};

/* pinned_bytes: of each of GPU, the most that a client may hold; 0: no limit. holds: a namespace's
   percentage, which the client's own does not lower either. partition: the number of the client's
   partition + 1; 0: the server has none.  */
struct mps_answer
{
  uint32_t magic;
  int32_t error; /* a CUresult; then nothing else counts */
  uint32_t server;
  uint32_t generation;
  uint32_t percent;
  uint32_t holds;
  uint32_t partition;
  uint32_t multiprocessors;
  uint32_t gpu_count;
  uint32_t gpu[SOFTGPU_MAX_GPUS];
  uint64_t pinned_bytes[SOFTGPU_MAX_GPUS];
  char shared[64]; /* a file in /dev/shm that the client needs; "": none */
};
