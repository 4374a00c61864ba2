/* softgpu create --mig, softgpu mig: a GPU in MIG mode, and its MIG devices, each a GPU instance
   with one compute instance.  */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "create/files.h"
#include "create/request.h"

enum
{
  CAPABILITIES_MAJOR = 509,
  SLICES = 7,
};

#define HINT "give a GPU and profiles that fit into it, such as 1=1g.4gb,2g.8gb"

/* The first number of a GPU instance with so many slices, as drivers number them.  */
static unsigned
first_instance (unsigned slices)
{
  return slices == 1 ? 7 : slices == 2 ? 3 : slices < SLICES ? 1 : 0;
}

static const char *
place_of (char *path, const char *root, const struct softgpu_gpu *device)
{
  return path_in (path, "%s/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u", root, device->minor,
                  device->instance);
}

static void
tell_capability (const char *folder, const char *root, unsigned minor)
{
  char path[4096], text[128];
  make_folders (folder);
  snprintf (text, sizeof text,
            "DeviceFileMinor: %u\n"
            "DeviceFileMode: 292\n"
            "DeviceFileModify: 1\n",
            minor);
  write_text (path_in (path, "%s/access", folder), text);
  make_node (path_in (path, "%s/dev/nvidia-caps/nvidia-cap%u", root, minor), CAPABILITIES_MAJOR,
             minor);
}

static void
remove_device (const char *root, struct softgpu_gpu *device)
{
  char place[4096], path[4096];
  unsigned minor = SOFTGPU_CAPABILITY_MINOR (device->minor, device->instance);
  place_of (place, root, device);
  unlink (path_in (path, "%s/ci0/access", place));
  rmdir (path_in (path, "%s/ci0", place));
  unlink (path_in (path, "%s/access", place));
  rmdir (place);
  for (unsigned one = minor; one <= minor + 1; one++)
    unlink (path_in (path, "%s/dev/nvidia-caps/nvidia-cap%u", root, one));
  memset (device, 0, sizeof *device);
}

static void
add_device (const char *root, struct softgpu_state *state, unsigned parent,
            struct softgpu_gpu device)
{
  const struct softgpu_gpu gpu = state->gpu[parent];
  unsigned at = state->gpu_count;
  while (at < state->entries && *state->gpu[at].uuid)
    at++;
  if (at == state->entries)
    fail (1, root, "there is no room for so many MIG devices", "create it with --mig, and fewer");
  device.parent = parent + 1;
  device.minor = gpu.minor;
  device.pci_bus = gpu.pci_bus;
  snprintf (device.name, sizeof device.name, "%.40s MIG %ug.%ugb", gpu.name, device.slices,
            (unsigned) (device.memory_bytes >> 30));
  /* The GPU's, with the instance in it: a UUID of its own that a seed gives again.  */
  snprintf (device.uuid, sizeof device.uuid, "MIG-%x%.35s", device.instance, gpu.uuid + 5);
  char place[4096], path[4096];
  unsigned minor = SOFTGPU_CAPABILITY_MINOR (device.minor, device.instance);
  state->gpu[at] = device;
  place_of (place, root, &device);
  tell_capability (place, root, minor);
  tell_capability (path_in (path, "%s/ci0", place), root, minor + 1);
}

void
divide (const char *root, struct softgpu_state *state, const char *text)
{
  unsigned parent, slices = 0, count = 0, gib, next[SLICES + 1] = { 0 };
  uint64_t bytes = 0;
  struct softgpu_gpu wanted[SOFTGPU_MIG_DEVICES];
  int length = 0;
  if (sscanf (text, "%2u=%n", &parent, &length) != 1 || !length || parent >= state->gpu_count)
    fail (2, "mig", text, HINT);
  struct softgpu_gpu *gpu = &state->gpu[parent];
  for (const char *at = text + length; *at; at += length)
    {
      struct softgpu_gpu *device = &wanted[count];
      length = 0;
      if (count == SOFTGPU_MIG_DEVICES
          || sscanf (at, "%1ug.%5ugb%n", &device->slices, &gib, &length) != 2 || !length
          || !device->slices || !gib || (at[length] && at[length] != ','))
        fail (2, "mig", text, HINT);
      length += at[length] == ',';
      *device = (struct softgpu_gpu){ .slices = device->slices,
                                      .number = count++,
                                      .memory_bytes = (uint64_t) gib << 30 };
      unsigned first = first_instance (device->slices);
      device->instance = first + next[first]++;
      slices += device->slices;
      bytes += device->memory_bytes;
      if (slices > SLICES || bytes > gpu->memory_bytes)
        fail (2, "mig", text, HINT);
    }
  char path[4096];
  make_folders (path_in (path, "%s/dev/nvidia-caps", root));
  make_folders (path_in (path, "%s/proc/driver/nvidia/capabilities/gpu%u/mig", root, gpu->minor));
  for (unsigned g = state->gpu_count; g < state->entries; g++)
    if (state->gpu[g].parent == parent + 1)
      remove_device (root, &state->gpu[g]);
  gpu->divided = 1;
  for (unsigned i = 0; i < count; i++)
    add_device (root, state, parent, wanted[i]);
}
