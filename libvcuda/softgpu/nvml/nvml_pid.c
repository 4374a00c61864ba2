/* A process of another pid namespace, as the caller sees it. The host sees the processes of its
   containers; a container sees its own.  */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nvml/monitor.h"

uint64_t
softgpu_pid_namespace (const char *pid)
{
  char path[300];
  struct stat file;
  snprintf (path, sizeof path, "/proc/%s/ns/pid", pid);
  return stat (path, &file) == 0 ? file.st_ino : 0;
}

/* The last number of the line NSpid: the pid in the innermost namespace.  */
static unsigned
innermost_pid (const char *pid)
{
  char path[300], line[512];
  unsigned found = 0;
  snprintf (path, sizeof path, "/proc/%s/status", pid);
  FILE *status = fopen (path, "re");
  if (!status)
    return 0;
  while (!found && fgets (line, sizeof line, status))
    if (strncmp (line, "NSpid:", 6) == 0)
      {
        line[strcspn (line, "\n")] = 0;
        found = (unsigned) strtoul (strrchr (line, '\t') + 1, NULL, 10);
      }
  fclose (status);
  return found;
}

unsigned
softgpu_pid_here (unsigned pid, uint64_t namespace)
{
  if (softgpu_pid_namespace ("self") == namespace)
    return pid;
  DIR *proc = namespace ? opendir ("/proc") : NULL;
  unsigned found = 0;
  for (struct dirent *entry; proc && !found && (entry = readdir (proc));)
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9'
        && softgpu_pid_namespace (entry->d_name) == namespace
        && innermost_pid (entry->d_name) == pid)
      found = (unsigned) strtoul (entry->d_name, NULL, 10);
  if (proc)
    closedir (proc);
  return found;
}
