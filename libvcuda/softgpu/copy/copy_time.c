/* How long copies and sets take: the device, where `softgpu create --copy-rate` says, and the bus
   between it and others, where --bus-rate does.  */

#include "copy/copy_time.h"
#include "stream/bus_copy.h"
#include "stream/streams.h"

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
  uint64_t rate = driver.tie.state->copy_rate;
  CUcontext context = softgpu_stream_context (stream);
  if (!bytes || !context || (!rate && !driver.tie.state->bus_rate))
    return CUDA_SUCCESS;
  if (!on_device (context->device, to) || !on_device (context->device, from))
    return softgpu_bus_copy (stream, bytes, on_device (context->device, to));
  if (!rate)
    return CUDA_SUCCESS;
  uint64_t time_ns = (uint64_t) ((unsigned __int128) bytes * 1000000000u / rate);
  return softgpu_launch (stream, &(struct gpu_work){ time_ns, time_ns, SOFTGPU_WHOLE, 0 });
}
