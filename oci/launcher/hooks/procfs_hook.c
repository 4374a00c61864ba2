/* A createRuntime hook: mounts a folder of the host over a folder of the container's /proc.

     vcuda-procfs-hook ROOTFS SOURCE PLACE          ROOTFS/proc/PLACE shows SOURCE, read-only

   runc refuses bind mounts below /proc in config.json, so a hook makes them. The container's state
   is on stdin. The hook runs outside the container's cgroup and root, and enters only its mount
   namespace. It opens nothing of the image: it fails where a part of PLACE is a symlink, or where
   the folder is not of procfs.  */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "hooks/streams.h"

#define PROC_MAGIC 0x9fa0
#define STATE_BYTES (1 << 20)
#define FOLDER (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static _Noreturn void
die (const char *where, const char *what)
{
  fprintf (stderr,
           "vcuda-procfs-hook: %s: %s; start the container again, and report it if it stays\n",
           where, what);
  exit (1);
}

/* Returns the number "pid" of the outermost object; 0: it is missing or not an integer. Annotations
   may contain the same text in an inner object or in a string. Of duplicate keys the last counts,
   as in other JSON parsers.  */
static long
pid_of (const char *state)
{
  const char *key = NULL;
  size_t key_length = 0;
  int depth = 0;
  long pid = 0;
  for (const char *at = state; *at; at++)
    if (*at == '"')
      {
        key = ++at;
        while (*at && *at != '"')
          at += *at == '\\' && at[1] ? 2 : 1;
        if (!*at)
          break;
        key_length = (size_t) (at - key);
      }
    else if (*at == ':' && depth == 1 && key_length == 3 && strncmp (key, "pid", 3) == 0)
      {
        char *end;
        pid = strtol (at + 1, &end, 10);
        if (!strspn (end, " \t\r\n,}")) /* 7e3 is not process 7 */
          pid = 0;
      }
    else if (*at == '{' || *at == '[')
      depth++;
    else if (*at == '}' || *at == ']')
      depth--;
  return pid;
}

static void
enter_container (void)
{
  static char state[STATE_BYTES];
  size_t length = fread (state, 1, sizeof state - 1, stdin);
  state[length] = '\0';
  long pid = pid_of (state);
  if (pid <= 1)
    die ("the container's state on stdin", "names no process");
  char path[64];
  snprintf (path, sizeof path, "/proc/%ld/ns/mnt", pid);
  int fd = open (path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns (fd, CLONE_NEWNS) != 0)
    die (path, strerror (errno));
  close (fd);
}

/* Opens ROOTFS/proc/PLACE: a folder of procfs, or what an earlier call mounted over it.  */
static int
open_place (const char *rootfs, const char *place)
{
  char steps[PATH_MAX];
  if (snprintf (steps, sizeof steps, "proc/%s", place) >= (int) sizeof steps)
    die (place, "too long");
  int fd = open (rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
  char *rest = NULL;
  for (char *step = strtok_r (steps, "/", &rest); fd >= 0 && step;
       step = strtok_r (NULL, "/", &rest))
    {
      errno = EINVAL;
      int below = strcmp (step, "..") == 0 ? -1 : openat (fd, step, FOLDER);
      int reason = errno;
      close (fd);
      errno = reason;
      fd = below;
    }
  if (fd < 0)
    die (place, strerror (errno));
  return fd;
}

static bool
same_folder (int one, int other)
{
  struct stat of_one, of_other;
  return fstat (one, &of_one) == 0 && fstat (other, &of_other) == 0
         && of_one.st_dev == of_other.st_dev && of_one.st_ino == of_other.st_ino;
}

int
main (int argc, char **argv)
{
  if (!leave_files_of_host ())
    return 1;
  if (argc != 4)
    die ("usage", "vcuda-procfs-hook ROOTFS SOURCE PLACE");
  const char *rootfs = argv[1], *place = argv[3];
  enter_container ();
  char target[64], source[64];
  int from = open (argv[2], FOLDER);
  if (from < 0)
    die (argv[2], strerror (errno));
  snprintf (source, sizeof source, "/proc/self/fd/%d", from);
  int covered = open_place (rootfs, place);
  if (same_folder (covered, from)) /* another entry point mounted it */
    return 0;
  struct statfs status;
  if (fstatfs (covered, &status) != 0 || status.f_type != PROC_MAGIC)
    die (place, "is not the container's procfs");
  snprintf (target, sizeof target, "/proc/self/fd/%d", covered);
  if (mount (source, target, NULL, MS_BIND, NULL) != 0)
    die (place, strerror (errno));
  /* `covered` refers to the folder below the mount; only a new descriptor refers to the mount.  */
  snprintf (target, sizeof target, "/proc/self/fd/%d", open_place (rootfs, place));
  unsigned long options = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (mount (NULL, target, NULL, options, NULL) != 0)
    die (place, strerror (errno));
  return 0;
}
