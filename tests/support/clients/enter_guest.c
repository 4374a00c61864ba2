/* usage: enter_guest FOLDER COMMAND [ARGUMENT ...]

   Runs COMMAND in a mount namespace of its own, with the driver and the pages in FOLDER below
   /usr/local/vcuda. All else of /usr/local is hidden, so that no vcuda or CUDA of the host is
   loaded. A page that does not exist must not exist in the guest either. A shell with mount's
   program does the same in ten times the processor time.  */

#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define INSIDE "/usr/local/vcuda"

static void
check (int rc, const char *what)
{
  if (rc >= 0)
    return;
  perror (what);
  exit (1);
}

/* FOLDER/NAME, on the file or folder below /usr/local/vcuda that has this name.  */
static void
bind (const char *folder, const char *name, const char *inside)
{
  char outside[4096];
  snprintf (outside, sizeof outside, "%s/%s", folder, name);
  check (mount (outside, inside, NULL, MS_BIND, NULL), inside);
}

static int
bind_page (const char *folder, const char *name, const char *inside)
{
  char outside[4096];
  snprintf (outside, sizeof outside, "%s/%s", folder, name);
  if (access (outside, F_OK) != 0)
    return 0;
  int fd = open (inside, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  check (fd, inside);
  close (fd);
  bind (folder, name, inside);
  return 1;
}

int
main (int argc, char **argv)
{
  if (argc < 3)
    return 2;
  check (unshare (CLONE_NEWNS), "unshare");
  check (mount ("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "/");
  check (mount ("none", "/usr/local", "tmpfs", 0, NULL), "/usr/local");
  check (mkdir (INSIDE, 0755), INSIDE);
  check (mkdir (INSIDE "/driver", 0755), INSIDE "/driver");
  bind (argv[1], "driver", INSIDE "/driver");
  bind_page (argv[1], "usage", INSIDE "/usage");
  if (bind_page (argv[1], "limits", INSIDE "/limits"))
    check (mount (NULL, INSIDE "/limits", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), "limits");
  execvp (argv[2], argv + 2);
  perror (argv[2]);
  return 127;
}
