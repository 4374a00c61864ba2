/* How long the device takes for copies and sets, where `softgpu create --copy-rate` says.  */

#include "copy_time.h"

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
  if (!rate || !bytes)
    return CUDA_SUCCESS;
  CUcontext context = softgpu_stream_context (stream);
  if (!context || !on_device (context->device, to) || !on_device (context->device, from))
    return CUDA_SUCCESS;
  return softgpu_launch (stream, (uint64_t) ((unsigned __int128) bytes * 1000000000u / rate));
}
