/* hold-lease PATH: takes a file lease on a file and never gives it up.  */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

int
main (int argc, char **argv)
{
  signal (SIGIO, SIG_IGN);
  int fd = argc == 2 ? open (argv[1], O_RDWR) : -1;
  if (fd < 0 || fcntl (fd, F_SETLEASE, F_WRLCK) != 0)
    return 1;
  for (;;)
    pause ();
}
