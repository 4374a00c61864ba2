/* The control program without -d and -f: sends its arguments, or each line of its input, to the
   daemon.  */

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mps/daemon.h"

static int
dial (const char *pipes, const char *name)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int length = snprintf (address.sun_path, sizeof address.sun_path, "%s/%s", pipes, name);
  if (length < 0 || (size_t) length >= sizeof address.sun_path)
    return -1;
  int fd = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect (fd, (const struct sockaddr *) &address, sizeof address) == 0)
    return fd;
  if (fd >= 0)
    close (fd);
  return -1;
}

/* The exit status; -1: the daemon has ended.  */
static int
send_line (int fd, const char *line)
{
  static char answer[65536];
  if (send (fd, line, strlen (line), MSG_NOSIGNAL) < 0)
    return -1;
  ssize_t length = recv (fd, answer, sizeof answer, 0);
  if (length < 2)
    return -1;
  fwrite (answer, 1, (size_t) length - 2, stdout); /* a NUL and the status end it */
  fflush (stdout);
  return answer[length - 1];
}

int
mps_ask (const char *pipes, const char *line)
{
  char input[512];
  int fd = dial (pipes, MPS_PRIVILEGED);
  if (fd < 0)
    fd = dial (pipes, MPS_CONTROL);
  if (fd < 0)
    {
      puts ("Cannot find MPS control daemon process");
      return 1;
    }
  int status = line ? send_line (fd, line) : 0;
  while (!line && status >= 0 && fgets (input, sizeof input, stdin))
    {
      input[strcspn (input, "\n")] = 0;
      if (*input)
        status = send_line (fd, input);
    }
  close (fd);
  return line ? status != 0 : 0;
}
