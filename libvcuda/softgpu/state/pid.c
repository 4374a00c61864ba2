/* Pids across pid namespaces, by /proc.  */

#include "state/pid.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t
softgpu_pid_namespace (const char *pid)
{
  char path[300];
  struct stat file;
  snprintf (path, sizeof path, "/proc/%s/ns/pid", pid);
  return stat (path, &file) == 0 ? file.st_ino : 0;
}

/* The last number of the line NAME of a status file: the pid in the innermost namespace. FOLDER is
   the process's in /proc; 0: it has ended.  */
static unsigned
innermost_pid (int folder, const char *name)
{
  char line[512];
  unsigned found = 0;
  int fd = openat (folder, "status", O_RDONLY | O_CLOEXEC);
  FILE *status = fd >= 0 ? fdopen (fd, "r") : NULL;
  if (!status)
    return 0;
  while (!found && fgets (line, sizeof line, status))
    if (strncmp (line, name, strlen (name)) == 0)
      {
        line[strcspn (line, "\n")] = 0;
        found = (unsigned) strtoul (strrchr (line, '\t') + 1, NULL, 10);
      }
  fclose (status);
  return found;
}

static int
open_process (const char *pid)
{
  char path[300];
  snprintf (path, sizeof path, "/proc/%s", pid);
  return open (path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The open folder stays with its process: what is read there is never of a later process with the
   same pid.  */
bool
softgpu_process_of (int pid, struct softgpu_process *process)
{
  char name[16];
  struct stat namespace;
  snprintf (name, sizeof name, "%d", pid);
  int folder = pid > 0 ? open_process (name) : -1;
  if (folder < 0)
    return false;
  bool seen = fstatat (folder, "ns/pid", &namespace, 0) == 0;
  *process = (struct softgpu_process){ seen ? namespace.st_ino : 0,
                                       seen ? innermost_pid (folder, "NStgid:") : 0 };
  close (folder);
  return process->pid != 0;
}

unsigned
softgpu_pid_here (unsigned pid, uint64_t namespace)
{
  if (softgpu_pid_namespace ("self") == namespace)
    return pid;
  DIR *proc = namespace ? opendir ("/proc") : NULL;
  unsigned found = 0;
  for (struct dirent *entry; proc && !found && (entry = readdir (proc));)
    {
      const char *name = entry->d_name;
      if (name[0] < '1' || name[0] > '9' || softgpu_pid_namespace (name) != namespace)
        continue;
      int folder = open_process (name);
      if (folder >= 0 && innermost_pid (folder, "NSpid:") == pid)
        found = (unsigned) strtoul (name, NULL, 10);
      if (folder >= 0)
        close (folder);
    }
  if (proc)
    closedir (proc);
  return found;
}
