/* What a hook may write to. crun opens the file that the annotation run.oci.hooks.stdout or .stderr
   names, as root on the host, for the hooks of that container; Podman makes an image's annotations
   the container's. So an image's author may have chosen the file, and error lines quote the image.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "streams.h"

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

/* Redirects standard output and error to /dev/null unless they are a pipe, a socket or a terminal.
   True: they are redirected; the runtime's own standard error gets the line then
   (created_container.py).  */
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
