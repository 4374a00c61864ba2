/* forks PIECE: holds one piece and forks. Prints how much of the share is free in the parent while
   the child lives, and after the child has allocated and ended.  */

#include <sys/wait.h>
#include <unistd.h>

#include "common/gpu.h"

static size_t
free_bytes (void)
{
  size_t free_now, total;
  MUST (cuMemGetInfo (&free_now, &total));
  return free_now;
}

int
main (int argc, char **argv)
{
  CUdeviceptr held;
  int pipes[2];
  if (argc != 2 || pipe (pipes))
    return 2;
  use_gpu (0);
  MUST (cuMemAlloc (&held, strtoull (argv[1], NULL, 10)));
  pid_t child = fork ();
  if (child == 0)
    {
      /* CUDA itself cannot be used in a forked child; freeing must not touch the parent's share,
         and the child outlives nothing that it did not take.  */
      cuMemFree (held);
      char byte;
      _exit (read (pipes[0], &byte, 1) == 1 ? 0 : 1);
    }
  size_t during = free_bytes ();
  if (write (pipes[1], "x", 1) != 1)
    return 1;
  int status;
  waitpid (child, &status, 0);
  size_t after = free_bytes ();
  MUST (cuMemFree (held));
  printf ("{\"during\": %zu, \"after\": %zu, \"freed\": %zu, \"status\": %d}\n", during, after,
          free_bytes (), status);
  return 0;
}
