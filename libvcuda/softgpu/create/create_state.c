/* softgpu: the state file of a new driver root.  */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "create/files.h"
#include "create/request.h"

/* A small hash function, so that a seed gives the same UUIDs on every machine.  */
static uint64_t
mix (uint64_t *seed)
{
  uint64_t value = *seed += 0x9e3779b97f4a7c15ull;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ value >> 27) * 0x94d049bb133111ebull;
  return value ^ value >> 31;
}

static void
name_gpu (char *uuid, uint64_t *seed)
{
  uint64_t high = mix (seed), low = mix (seed);
  high = (high & ~0xf000ull) | 0x4000;      /* version 4: random */
  low = (low & ~(3ull << 62)) | 2ull << 62; /* its variant */
  snprintf (uuid, 48, "GPU-%08x-%04x-%04x-%04x-%012llx", (unsigned) (high >> 32),
            (unsigned) (high >> 16 & 0xffff), (unsigned) (high & 0xffff), (unsigned) (low >> 48),
            (unsigned long long) (low & 0xffffffffffffull));
}

/* Of GPUs that may all be divided, as far as there is room.  */
static uint32_t
entries_of (unsigned gpus)
{
  unsigned all = gpus * (1 + SOFTGPU_MIG_DEVICES);
  return all < SOFTGPU_MAX_ENTRIES ? all : SOFTGPU_MAX_ENTRIES;
}

/* The newest CUDA of a driver's branch, as cuDriverGetVersion answers it. Source: the release notes
   of CUDA, "CUDA Driver"; of a branch between two the older one's.  */
static int32_t
cuda_of (const char *driver)
{
  static const struct
  {
    int branch;
    int32_t cuda;
  } newest[] = {
    { 615, 13040 }, { 590, 13010 }, { 580, 13000 }, { 575, 12090 }, { 570, 12080 }, { 565, 12070 },
    { 560, 12060 }, { 555, 12050 }, { 550, 12040 }, { 545, 12030 }, { 535, 12020 }, { 530, 12010 },
  };
  int branch = atoi (driver);
  for (size_t i = 0; i < sizeof newest / sizeof newest[0]; i++)
    if (branch >= newest[i].branch)
      return newest[i].cuda;
  return 12000;
}

struct softgpu_state *
make_state (const struct request *request)
{
  char path[4096], beside[4096];
  path_in (path, "%s/softgpu.state", request->root);
  path_in (beside, "%s/softgpu.state.new", request->root);
  uint32_t entries = request->migs ? entries_of (request->gpus) : request->gpus;
  size_t bytes = softgpu_state_size (entries);
  unlink (beside);
  int fd = open (beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  void *map = MAP_FAILED;
  if (fd >= 0 && fchmod (fd, 0666) == 0 && ftruncate (fd, (off_t) bytes) == 0)
    map = mmap (NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED)
    fail (1, beside, strerror (errno), "choose a folder on a writable file system");
  struct softgpu_state *state = map;
  uint64_t seed = request->seed;
  if (!request->seeded && getrandom (&seed, sizeof seed, 0) != sizeof seed)
    fail (1, "getrandom", strerror (errno), "give --seed");
  for (unsigned g = 0; g < request->gpus; g++)
    {
      struct softgpu_gpu *gpu = &state->gpu[g];
      snprintf (gpu->name, sizeof gpu->name, "%s", request->model);
      name_gpu (gpu->uuid, &seed);
      gpu->memory_bytes = request->memory_bytes;
      gpu->minor = g;
      gpu->exclusive = request->exclusive;
      gpu->pci_bus = g + 1;
    }
  snprintf (state->driver_version, sizeof state->driver_version, "%s", request->driver_version);
  state->cuda_version = cuda_of (request->driver_version);
  state->clock = request->clock;
  state->no_preemption = request->no_preemption;
  state->slice_ns = request->slice_ns;
  state->switch_ns = request->switch_ns;
  state->submit_ns = request->submit_ns;
  state->context_bytes = request->context_bytes;
  state->no_managed = request->no_managed;
  state->copy_rate = request->copy_rate;
  state->bus_rate = request->bus_rate;
  state->checkpoint_rate = request->checkpoint_rate;
  state->restore_rate = request->restore_rate;
  state->caller_end = request->caller_end;
  state->topology = request->topology;
  state->gpu_count = request->gpus;
  state->entries = entries;
  state->version = SOFTGPU_VERSION;
  state->magic = SOFTGPU_MAGIC;
  if (rename (beside, path) != 0)
    fail (1, path, strerror (errno), "choose a folder on a writable file system");
  close (fd);
  return state;
}
