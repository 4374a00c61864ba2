/* Writes the keeper's figures.  */

#include "tenant/figures.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int folder = -1;

void
figures_begin (const char *state_dir)
{
  char path[4096];
  snprintf (path, sizeof path, "%s/turns", state_dir);
  mkdir (path, 0700);
  folder = open (path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0)
    perror ("vcuda-turn-keeper: the folder of its figures");
}

void
figures_write (const char *uuid, uint64_t now, uint64_t lost_ns, struct tenant *const *tenants,
               int count)
{
  char new[64];
  snprintf (new, sizeof new, "%s.new", uuid);
  if (folder < 0 || strchr (uuid, '/'))
    return;
  int fd = openat (folder, new, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  FILE *file = fd < 0 ? NULL : fdopen (fd, "w");
  if (!file)
    {
      if (fd >= 0)
        close (fd);
      return;
    }
  fprintf (file, "%" PRIu64 " %" PRIu64 "\n", now, lost_ns);
  for (int i = 0; i < count; i++)
    {
      const struct tenant *one = tenants[i];
      fprintf (file, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
               one->held_ns, one->waited_ns - one->waited_before_ns - one->waited_for_share_ns,
               one->waited_for_share_ns, one->lost_ns, one->free_ns, one->false_ns,
               one->container->id);
    }
  bool written = !ferror (file);
  if (fclose (file) == 0 && written)
    renameat (folder, new, folder, uuid);
  else
    unlinkat (folder, new, 0);
}
