/* orphan PIECE: holds a piece, forks a child that lives on, and dies of SIGKILL. The child must not
   keep the parent's share alive.  */

#include <signal.h>
#include <unistd.h>

#include "gpu.h"

int
main (int argc, char **argv)
{
  CUdeviceptr held;
  if (argc != 2)
    return 2;
  use_gpu (0);
  MUST (cuMemAlloc (&held, strtoull (argv[1], NULL, 10)));
  pid_t child = fork ();
  if (child == 0)
    {
      /* Closed, so that who reads our output sees the parent's end.  */
      close (STDOUT_FILENO);
      close (STDERR_FILENO);
      sleep (20);
      _exit (0);
    }
  printf ("%d\n", (int) child);
  fflush (stdout);
  raise (SIGKILL);
}
