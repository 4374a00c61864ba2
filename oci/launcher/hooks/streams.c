/* Keeps hooks from writing to files of the host.

   crun opens the files that the annotations run.oci.hooks.stdout and .stderr name, as root on the
   host, as output of the container's hooks. Podman copies an image's annotations to the container,
   so the image's author may choose the file and, because error lines quote the image, its
   content.  */

#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "hooks/streams.h"

#define PIPE_MAGIC 0x50495045 /* PIPEFS_MAGIC of linux/magic.h: a pipe that has no name */

static bool
is_file_of_host (int stream)
{
  struct stat status;
  struct statfs kind;
  if (fstat (stream, &status) != 0)
    return false; /* closed */
  if (S_ISFIFO (status.st_mode))
    return fstatfs (stream, &kind) != 0 || kind.f_type != PIPE_MAGIC;
  return !S_ISSOCK (status.st_mode) && !isatty (stream);
}

bool
leave_files_of_host (void)
{
  for (int stream = 1; stream <= 2; stream++)
    if (is_file_of_host (stream))
      {
        int null = open ("/dev/null", O_RDWR | O_CLOEXEC);
        if (null < 0 || dup2 (null, stream) < 0)
          return false;
        close (null);
      }
  return true;
}
