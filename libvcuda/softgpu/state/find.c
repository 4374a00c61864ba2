/* Finds the software GPU's files, as this process sees them.  */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/attach.h"

static bool
at_root (struct softgpu_paths *paths, const char *root)
{
  int state = snprintf (paths->state, sizeof paths->state, "%s/softgpu.state", root);
  int devices = snprintf (paths->devices, sizeof paths->devices, "%s/dev", root);
  if (state < 0 || (size_t) state >= sizeof paths->state || devices < 0
      || (size_t) devices >= sizeof paths->devices)
    return false;
  return access (paths->state, F_OK) == 0;
}

/* A driver root keeps its libraries three folders deep: usr/lib/x86_64-linux-gnu.  */
static bool
beside_library (struct softgpu_paths *paths)
{
  Dl_info self;
  if (!dladdr ((void *) (uintptr_t) beside_library, &self) || !self.dli_fname)
    return false;
  const char *slash = strrchr (self.dli_fname, '/');
  if (!slash)
    return false;
  char root[4096];
  int length = snprintf (root, sizeof root, "%.*s/../../..", (int) (slash - self.dli_fname),
                         self.dli_fname);
  return length > 0 && (size_t) length < sizeof root && at_root (paths, root);
}

bool
softgpu_find (struct softgpu_paths *paths)
{
  const char *root = getenv ("SOFTGPU_ROOT");
  if (root && *root)
    return at_root (paths, root);
  if (beside_library (paths))
    return true;
  /* In a container the state file is mounted here, and the device nodes are in its /dev.  */
  strcpy (paths->state, "/run/softgpu/softgpu.state");
  strcpy (paths->devices, "/dev");
  return access (paths->state, F_OK) == 0;
}

bool
softgpu_visible (const char *devices, const char *name, unsigned minor)
{
  char node[4096 + 64];
  snprintf (node, sizeof node, "%s/%s%u", devices, name, minor);
  int fd = open (node, O_RDWR | O_CLOEXEC);
  if (fd >= 0)
    {
      close (fd);
      return true;
    }
  /* ENXIO: the device rule lets us in and there is no hardware behind. EACCES: the node lies on a
     nodev mount, as in a driver root under /tmp. EPERM is the cgroup's refusal.  */
  return errno == ENXIO || errno == ENODEV || errno == EACCES;
}
