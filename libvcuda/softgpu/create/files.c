/* Writes the files of a driver root.  */

#include "create/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

void
fail (int status, const char *where, const char *what, const char *hint)
{
  fprintf (stderr, "softgpu: %s: %s; %s\n", where, what, hint);
  exit (status);
}

const char *
path_in (char *buffer, const char *format, ...)
{
  va_list arguments;
  va_start (arguments, format);
  int length = vsnprintf (buffer, 4096, format, arguments);
  va_end (arguments);
  if (length < 0 || length >= 4096)
    fail (1, "driver root", "its path is too long", "choose a shorter one");
  return buffer;
}

void
make_folders (const char *path)
{
  char part[4096];
  path_in (part, "%s", path);
  for (char *at = part + 1; *at; at++)
    if (*at == '/')
      {
        *at = 0;
        mkdir (part, 0755);
        *at = '/';
      }
  if (mkdir (part, 0755) != 0 && errno != EEXIST)
    fail (1, path, strerror (errno), "choose a folder that you may write to");
}

void
copy_file (const char *from, const char *to, unsigned mode)
{
  int in = open (from, O_RDONLY | O_CLOEXEC);
  if (in < 0)
    fail (1, from, strerror (errno), "build the software GPU first (make softgpu)");
  /* A new file each time: a process that has the old one mapped keeps it whole.  */
  char beside[4096];
  path_in (beside, "%s.new", to);
  int out = open (beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (out < 0)
    fail (1, beside, strerror (errno), "choose a folder that you may write to");
  ssize_t got;
  while ((got = sendfile (out, in, NULL, 1 << 20)) > 0)
    continue;
  fchmod (out, mode);
  if (got < 0 || close (out) != 0 || rename (beside, to) != 0)
    fail (1, to, strerror (errno), "free some space");
  close (in);
}

void
write_text (const char *path, const char *text)
{
  FILE *out = fopen (path, "we");
  if (!out || fputs (text, out) < 0 || fclose (out) != 0)
    fail (1, path, strerror (errno), "choose a folder that you may write to");
}

void
make_link (const char *target, const char *path)
{
  unlink (path);
  if (symlink (target, path) != 0)
    fail (1, path, strerror (errno), "choose a folder that you may write to");
}

void
make_node (const char *path, unsigned major, unsigned minor)
{
  unlink (path);
  if (mknod (path, S_IFCHR | 0666, makedev (major, minor)) != 0)
    fail (1, path, strerror (errno), "run it as root, with CAP_MKNOD");
  chmod (path, 0666);
}
