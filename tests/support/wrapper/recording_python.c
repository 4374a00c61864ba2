/* Adds a line to the file beside it that is named .started, and runs Python, with the same
   environment.  */

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

int
main (int argc, char **argv)
{
  static const char end[] = ".started";
  char path[PATH_MAX];
  ssize_t length = readlink ("/proc/self/exe", path, sizeof path - sizeof end);
  if (!argc || length < 0)
    return 1;
  memcpy (path + length, end, sizeof end);
  int fd = open (path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (fd < 0 || write (fd, "started\n", 8) != 8 || close (fd) != 0)
    return 1;
  return execv ("/usr/bin/python3", argv);
}
