/* GPU instances in the state file, and the files of a driver root that stand for them.

   A driver numbers instances by their size and gives a freed number again at once; UUIDs it never
   repeats. Files are there before an entry needs them and go after it, so a process that is killed
   between the two leaves files without an instance, never the reverse.  */

#include "mig/instance.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum
{
  CAPABILITIES_MAJOR = 509,
  PATH_ROOM = 4096,
};

/* The first id of a GPU instance with so many slices.  */
static unsigned
first_id (unsigned slices)
{
  return slices == 1 ? 7 : slices == 2 ? 3 : slices < 7 ? 1 : 0;
}

static unsigned
minor_of (const struct softgpu_gpu *part)
{
  return SOFTGPU_CAPABILITY_MINOR (part->minor, part->instance);
}

static bool
folder (char *path, const char *root, const struct softgpu_gpu *gpu, const char *end)
{
  int length = snprintf (path, PATH_ROOM, "%s/proc/driver/nvidia/capabilities/gpu%u/mig%s", root,
                         gpu->minor, end);
  return length > 0 && length < PATH_ROOM;
}

static bool
make_one (const char *path)
{
  return mkdir (path, 0755) == 0 || errno == EEXIST;
}

/* A capability of the instance, or of its compute instance.  */
static bool
add_capability (const char *root, const struct softgpu_gpu *part, const char *compute,
                unsigned minor)
{
  char end[64], path[PATH_ROOM], access[PATH_ROOM + 8];
  snprintf (end, sizeof end, "/gi%u%s", part->instance, compute);
  if (!folder (path, root, part, end) || !make_one (path))
    return false;
  snprintf (access, sizeof access, "%s/access", path);
  FILE *file = fopen (access, "we");
  if (!file)
    return false;
  fprintf (file, "DeviceFileMinor: %u\nDeviceFileMode: 292\nDeviceFileModify: 1\n", minor);
  bool written = fclose (file) == 0;
  snprintf (access, sizeof access, "%s/dev/nvidia-caps/nvidia-cap%u", root, minor);
  unlink (access);
  mode_t mask = umask (0);
  bool made = mknod (access, S_IFCHR | 0666, makedev (CAPABILITIES_MAJOR, minor)) == 0;
  umask (mask);
  return written && made;
}

static void
remove_capability (const char *root, const struct softgpu_gpu *part, const char *compute,
                   unsigned minor)
{
  char end[64], path[PATH_ROOM], access[PATH_ROOM + 8];
  snprintf (end, sizeof end, "/gi%u%s", part->instance, compute);
  if (!folder (path, root, part, end))
    return;
  snprintf (access, sizeof access, "%s/access", path);
  unlink (access);
  rmdir (path);
  snprintf (access, sizeof access, "%s/dev/nvidia-caps/nvidia-cap%u", root, minor);
  unlink (access);
}

bool
softgpu_may_divide (const char *root, const struct softgpu_gpu *gpu)
{
  char path[PATH_ROOM];
  return geteuid () == 0 && folder (path, root, gpu, "") && access (path, W_OK) == 0;
}

bool
softgpu_begin_dividing (const char *root, const struct softgpu_gpu *gpu)
{
  static const char *const folders[] = { "dev/nvidia-caps", "proc", "proc/driver",
                                         "proc/driver/nvidia", "proc/driver/nvidia/capabilities" };
  char path[PATH_ROOM];
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    if (snprintf (path, sizeof path, "%s/%s", root, folders[i]) >= PATH_ROOM || !make_one (path))
      return false;
  snprintf (path, sizeof path, "%s/proc/driver/nvidia/capabilities/gpu%u", root, gpu->minor);
  return make_one (path) && folder (path, root, gpu, "") && make_one (path);
}

/* Whether another part of the same GPU has this id, or, with BY_NUMBER, this number.  */
static bool
is_used (const struct softgpu_state *state, unsigned parent, unsigned id, bool by_number)
{
  for (unsigned g = state->gpu_count; g < state->entries; g++)
    {
      const struct softgpu_gpu *part = &state->gpu[g];
      if (part->parent == parent + 1 && (by_number ? part->number : part->instance) == id)
        return true;
    }
  return false;
}

unsigned
softgpu_take_instance (struct softgpu_state *state, const char *root, unsigned parent,
                       unsigned slices, uint64_t memory_bytes)
{
  const struct softgpu_gpu *gpu = &state->gpu[parent];
  unsigned at = state->gpu_count, id = first_id (slices), number = 0;
  while (at < state->entries && state->gpu[at].parent)
    at++;
  if (at == state->entries)
    return SOFTGPU_MAX_ENTRIES;
  while (is_used (state, parent, id, false))
    id++;
  while (is_used (state, parent, number, true))
    number++;
  struct softgpu_gpu part = { .minor = gpu->minor,
                              .pci_bus = gpu->pci_bus,
                              .number = number,
                              .instance = id,
                              .slices = slices,
                              .memory_bytes = memory_bytes };
  if (!add_capability (root, &part, "", minor_of (&part)))
    return SOFTGPU_MAX_ENTRIES;
  part.serial = ++state->gpu[parent].made;
  state->gpu[at] = part;
  state->gpu[at].parent = parent + 1;
  return at;
}

bool
softgpu_add_compute (struct softgpu_state *state, const char *root, unsigned at)
{
  struct softgpu_gpu *part = &state->gpu[at], *gpu = &state->gpu[part->parent - 1];
  const struct softgpu_geometry *geometry = softgpu_geometry_of (gpu);
  if (!add_capability (root, part, "/ci0", minor_of (part) + 1))
    return false;
  char name[32];
  if (geometry)
    softgpu_name_profile (geometry, part->profile, name, sizeof name);
  else
    snprintf (name, sizeof name, "%ug.%ugb", part->slices, (unsigned) (part->memory_bytes >> 30));
  char whole[sizeof part->name + 40];
  snprintf (whole, sizeof whole, "%.40s MIG %.16s", gpu->name, name);
  memcpy (part->name, whole, sizeof part->name - 1);
  /* Spread over the digits, so that no prefix of a UUID is short by accident.  */
  unsigned first = (unsigned) ++gpu->made * 0x9e3779b9u ^ 0x4d494721u;
  char uuid[sizeof part->uuid];
  snprintf (uuid, sizeof uuid, "MIG-%08x%.30s", first, gpu->uuid + 12);
  memcpy (part->uuid, uuid, sizeof uuid);
  return true;
}

void
softgpu_remove_compute (struct softgpu_state *state, const char *root, unsigned at)
{
  struct softgpu_gpu *part = &state->gpu[at];
  *part->uuid = 0;
  remove_capability (root, part, "/ci0", minor_of (part) + 1);
}

void
softgpu_remove_instance (struct softgpu_state *state, const char *root, unsigned at)
{
  struct softgpu_gpu part = state->gpu[at];
  if (*part.uuid)
    softgpu_remove_compute (state, root, at);
  memset (&state->gpu[at], 0, sizeof state->gpu[at]);
  remove_capability (root, &part, "", minor_of (&part));
}
