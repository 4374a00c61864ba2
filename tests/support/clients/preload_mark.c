/* A library for LD_PRELOAD that names the program that loaded it: a line in MARK, a path of the
 * host's.  */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

extern char *program_invocation_name;

__attribute__ ((constructor)) static void
leave_a_mark (void)
{
  int fd = open (MARK, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0)
    return;
  if (write (fd, program_invocation_name, strlen (program_invocation_name)) < 0
      || write (fd, "\n", 1) < 0)
    unlink (MARK);
  close (fd);
}
