/* Removes the empty files that the low-level runtime made in a container's root as mount points of
   our mounts, once the container has ended. If they stayed, `docker commit` and BuildKit would
   copy them into the new image, where they hide a real driver.

   oci/vcuda_oci/guest/mount_points.py has written a note: the root's full path, then each mount's
   destination, each ended by NUL. The note was written before the mount points were made, so files
   older than the note belong to the image.

   Only the container's own overlay is changed: in a folder that two containers share, removing a
   mount point would remove the other container's mount.

   A build step of BuildKit ends differently: it calls the runtime's `run --keep`, unmounts the
   root, and only then deletes the container, so poststop hooks come too late. For such a container
   the createRuntime hook starts a process that waits for the end of the container's first process.
   It holds the root open: BuildKit tries to unmount it for 2.5 seconds, so the files are removed
   before the step's layer is read.  */

#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "hooks/mount_points.h"

#define OVERLAY_MAGIC 0x794c7630 /* OVERLAYFS_SUPER_MAGIC of linux/magic.h */
/* From linux/openat2.h, which musl lacks: struct open_how, RESOLVE_NO_XDEV,
   RESOLVE_NO_MAGICLINKS and RESOLVE_IN_ROOT.  */
#ifndef SYS_openat2
#  define SYS_openat2 437
#endif
#define STAYS_INSIDE (0x01 | 0x02 | 0x10)
#define NOTE_BYTES (1 << 18)
#define OWN_FOLDER "/usr/local/vcuda" /* GUEST_DIR of oci/vcuda_oci/model/names.py */
#define OWN_LENGTH (sizeof OWN_FOLDER - 1)

/* Whether a whole overlay is mounted at `path`, and not a folder of an overlay.  */
static bool
is_whole_overlay (const char *path)
{
  static char line[4 * PATH_MAX];
  char inner[PATH_MAX], place[PATH_MAX];
  bool is_whole = false;
  FILE *mounts = fopen ("/proc/self/mountinfo", "re");
  while (mounts && fgets (line, sizeof line, mounts))
    if (sscanf (line, "%*s %*s %*s %4095s %4095s", inner, place) == 2 && strcmp (place, path) == 0)
      is_whole = strcmp (inner, "/") == 0 && strstr (line, " - overlay "); /* the last one counts */
  if (mounts)
    fclose (mounts);
  return is_whole;
}

/* Opens the root at `path`; -1: it may belong to more than one container.  */
static int
open_own_root (const char *path)
{
  char opened[64], real[PATH_MAX];
  struct statfs kind;
  int root = *path == '/' ? open (path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  if (root < 0)
    return -1;
  snprintf (opened, sizeof opened, "/proc/self/fd/%d", root);
  ssize_t length = readlink (opened, real, sizeof real - 1);
  real[length > 0 ? length : 0] = '\0';
  if (fstatfs (root, &kind) == 0 && kind.f_type == OVERLAY_MAGIC && is_whole_overlay (real))
    return root;
  close (root);
  return -1;
}

/* Opens a folder as a process in the container finds it, on the root's own file system.  */
static int
open_inside (int root, const char *path)
{
  struct
  {
    uint64_t flags, mode, resolve;
  } how = { O_PATH | O_DIRECTORY | O_CLOEXEC, 0, STAYS_INSIDE };
  return (int) syscall (SYS_openat2, root, path, &how, sizeof how);
}

static bool
is_empty_since (const struct stat *file, const struct stat *note)
{
  return S_ISREG (file->st_mode) && file->st_size == 0
         && (file->st_ctim.tv_sec > note->st_mtim.tv_sec
             || (file->st_ctim.tv_sec == note->st_mtim.tv_sec
                 && file->st_ctim.tv_nsec >= note->st_mtim.tv_nsec));
}

/* Removes one mount point and the empty folders made for it. Shortens `place`.  */
static void
remove_mount_point (int root, char *place, const struct stat *note)
{
  struct stat file;
  char *name = strrchr (place, '/');
  if (place[0] != '/' || !name[1])
    return;
  *name++ = '\0';
  int folder = open_inside (root, *place ? place : "/");
  if (folder < 0)
    return;
  if (fstatat (folder, name, &file, AT_SYMLINK_NOFOLLOW) == 0 && is_empty_since (&file, note))
    unlinkat (folder, name, 0);
  close (folder);
  /* OWN_FOLDER is not in the image: the runtime made it and the folders in it.  */
  while (strncmp (place, OWN_FOLDER, OWN_LENGTH) == 0
         && (place[OWN_LENGTH] == '/' || !place[OWN_LENGTH]))
    {
      name = strrchr (place, '/');
      *name++ = '\0';
      folder = open_inside (root, place);
      if (folder < 0)
        return;
      int failed = unlinkat (folder, name, AT_REMOVEDIR);
      close (folder);
      if (failed)
        return;
    }
}

/* Waits in a process of its own until the process that `pidfd` refers to has ended. The calling
   process exits: the runtime waits for it, and its child must hold none of the runtime's pipes.  */
static void
wait_in_child (int pidfd)
{
  struct pollfd ended = { .fd = pidfd, .events = POLLIN };
  int null = open ("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || dup2 (null, 1) < 0 || dup2 (null, 2) < 0 || chdir ("/") != 0 || fork () != 0)
    exit (0);
  setsid ();
  while (poll (&ended, 1, -1) < 1)
    ;
}

void
remove_mount_points (int note, int pidfd)
{
  static char text[NOTE_BYTES];
  struct stat status;
  ssize_t size = pread (note, text, sizeof text, 0);
  if (size <= 0 || fstat (note, &status) != 0)
    return;
  char *root_path = text, *end = memchr (text, 0, (size_t) size);
  int root = end ? open_own_root (root_path) : -1;
  if (root < 0)
    return;
  if (pidfd >= 0)
    wait_in_child (pidfd);
  for (char *place = end + 1; (end = memchr (place, 0, (size_t) (text + size - place)));
       place = end + 1)
    remove_mount_point (root, place, &status);
  close (root);
}
