/* Finds the low-level runtime, and replaces this process by it or waits for it.  */

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "handover/error.h"
#include "handover/exec.h"
#include "settings/settings.h"

/* Where to look for a runtime after PATH. CRI-O's packages have a folder of their own. */
#define DEFAULT_PATH                                                                               \
  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/libexec/crio"

static bool
is_this_program (const char *path)
{
  struct stat ours, theirs;
  /* AT_EXECFN first: the use of procfs creates a folder for this process in it.  */
  const char *called = (const char *) getauxval (AT_EXECFN);
  return ((called && stat (called, &ours) == 0) || stat ("/proc/self/exe", &ours) == 0)
         && stat (path, &theirs) == 0 && ours.st_dev == theirs.st_dev
         && ours.st_ino == theirs.st_ino;
}

/* Finds the executable `name` in the colon-separated `folders`.  */
static bool
find_in (const char *folders, const char *name, char found[PATH_MAX])
{
  for (const char *end; folders && *folders; folders = *end ? end + 1 : end)
    {
      end = strchrnul (folders, ':');
      int length = snprintf (found, PATH_MAX, "%.*s/%s", (int) (end - folders), folders, name);
      if (folders[0] == '/' && length < PATH_MAX && access (found, X_OK) == 0)
        return true;
    }
  return false;
}

static bool
find_program (const char *name, char found[PATH_MAX])
{
  return find_in (getenv ("PATH"), name, found) || find_in (DEFAULT_PATH, name, found);
}

/* On a host that has only crun, crun is used where config.toml names runc, the default.
   runtime_hook/vcuda_hook/live/low_level.py finds the same runtime.  */
const char *
low_level_runtime (const struct file_text *config)
{
  static char path[PATH_MAX], value[PATH_MAX];
  const char *name = setting (config, "runtime", "runc", value);
  if (name[0] == '/')
    strcpy (path, name);
  else if (!find_program (name, path)
           && (strcmp (name, "runc") != 0 || !find_program ("crun", path)))
    die (name, "no such runtime in PATH", "install runc or crun, or set runtime in config.toml");
  if (is_this_program (path))
    die (path, "the low-level runtime is this wrapper itself", "set runtime in " VCUDA_CONFIG);
  return path;
}

_Noreturn void
become (const char *runtime, char **argv)
{
  argv[0] = (char *) runtime;
  execv (runtime, argv);
  char what[128];
  snprintf (what, sizeof what, "cannot be run: %s", strerror (errno));
  die (runtime, what, "install it, or set runtime in config.toml");
}

int
run_to_end (const char *program, char **argv)
{
  /* While SIGCHLD is ignored, the kernel keeps no exit status of a child.  */
  void (*before) (int) = signal (SIGCHLD, SIG_DFL);
  pid_t ours = getpid (), child = fork ();
  if (child == 0)
    {
      signal (SIGCHLD, before);
      prctl (PR_SET_PDEATHSIG, SIGKILL);
      if (getppid () != ours)
        _exit (1);
      become (program, argv);
    }
  int status = -1;
  while (child > 0 && waitpid (child, &status, 0) < 0 && errno == EINTR)
    continue;
  signal (SIGCHLD, before);
  return status;
}
