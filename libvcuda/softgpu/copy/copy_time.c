/* How long copies and sets take: the device, where `softgpu create --copy-rate` says, and the bus
   between it and others, where --bus-rate does.  */

#include "copy/copy.h"
#include "memory/allocations.h"
#include "stream/side_work.h"
#include "stream/streams.h"

/* By the kind clock the submitting thread waits for the stream, and later work for the copy.  */
static CUresult
kind_copy (CUstream stream, uint64_t time_ns)
{
  REQUIRE_SUCCESS (softgpu_drain_stream (stream));
  struct side_work *all = softgpu_side_of (NULL, softgpu_stream_context (stream)->device);
  uint64_t until = softgpu_now () + time_ns;
  if (!default_stream (stream))
    stream->side.until_ns = until;
  if (all->until_ns < until)
    all->until_ns = until;
  return CUDA_SUCCESS;
}

/* Queues a copy between the GPU and the host, or another GPU, on STREAM.  */
static CUresult
bus_copy (CUstream stream, uint64_t time_ns, bool to_gpu)
{
  const struct softgpu_command copy
      = { .kind = to_gpu ? SOFTGPU_TO_GPU : SOFTGPU_FROM_GPU, .left_ns = time_ns };
  uint64_t number;
  REQUIRE_SUCCESS (softgpu_submit_to (stream, &copy, NULL, &number));
  softgpu_side_of (stream, softgpu_stream_context (stream)->device)->copy = number;
  return CUDA_SUCCESS;
}

void
softgpu_wait_for_copy (CUdevice device)
{
  softgpu_wait (&driver.tie, gpu_index (device),
                (struct softgpu_target){ driver.device[device].side.copy, SOFTGPU_ONE });
  softgpu_side_wait (NULL, device);
}

static bool
on_device (CUdevice device, uintptr_t address)
{
  struct block block;
  return softgpu_find_block (address, &block) && block.where != ON_HOST && block.where != REGISTERED
         && block.device == device;
}

CUresult
softgpu_copy_takes_time (CUstream stream, uintptr_t to, uintptr_t from, size_t bytes)
{
  const struct softgpu_state *state = driver.tie.state;
  CUcontext context = softgpu_stream_context (stream);
  if (!bytes || !context || (!state->copy_rate && !state->bus_rate))
    return CUDA_SUCCESS;
  bool to_gpu = on_device (context->device, to);
  bool within = to_gpu && on_device (context->device, from);
  uint64_t rate = within ? state->copy_rate : state->bus_rate;
  if (!rate)
    return CUDA_SUCCESS;
  uint64_t time_ns = (uint64_t) ((unsigned __int128) bytes * 1000000000u / rate);
  if (!within)
    return state->clock == SOFTGPU_KIND ? kind_copy (stream, time_ns)
                                        : bus_copy (stream, time_ns, to_gpu);
  const struct softgpu_command busy
      = { .kind = SOFTGPU_KERNEL, .width = SOFTGPU_WHOLE, .piece_ns = time_ns, .left_ns = time_ns };
  return softgpu_submit_to (stream, &busy, NULL, NULL);
}
