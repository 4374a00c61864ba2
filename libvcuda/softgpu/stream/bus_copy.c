/* Copies over the bus.  */

#include "stream/bus_copy.h"

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

CUresult
softgpu_bus_copy (CUstream stream, size_t bytes, bool to_gpu)
{
  uint64_t rate = driver.tie.state->bus_rate, number;
  if (!rate || !bytes)
    return CUDA_SUCCESS;
  uint64_t time_ns = (uint64_t) ((unsigned __int128) bytes * 1000000000u / rate);
  if (driver.tie.state->clock == SOFTGPU_KIND)
    return kind_copy (stream, time_ns);
  const struct softgpu_command copy
      = { .kind = to_gpu ? SOFTGPU_TO_GPU : SOFTGPU_FROM_GPU, .left_ns = time_ns };
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
