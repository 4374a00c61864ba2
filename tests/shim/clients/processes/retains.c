/* retains CHILDREN: forks so many children, one after another, while a thread retains and releases
   the primary context. Each child tries it too and gets CUDA_ERROR_NOT_INITIALIZED. The last one
   stays, and the process prints "still".  */

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/gpu.h"

static void *
churn (void *unused)
{
  CUcontext context;
  for (;;)
    {
      MUST (cuDevicePrimaryCtxRetain (&context, 0));
      MUST (cuDevicePrimaryCtxRelease (0));
    }
  return unused;
}

/* The driver refuses every call here, and no lock that the parent held may block.  */
static int
in_child (void)
{
  CUcontext context;
  alarm (20);
  int wrong = cuDevicePrimaryCtxRetain (&context, 0) != CUDA_ERROR_NOT_INITIALIZED;
  wrong |= cuCtxCreate (&context, NULL, 0, 0) != CUDA_ERROR_NOT_INITIALIZED;
  alarm (0);
  return wrong;
}

int
main (int argc, char **argv)
{
  if (argc != 2)
    return 2;
  int children = atoi (argv[1]);
  use_gpu (0);
  CUcontext made;
  MUST (cuCtxCreate (&made, NULL, 0, 0));
  MUST (cuDevicePrimaryCtxRelease (0));
  pthread_t thread;
  pthread_create (&thread, NULL, churn, NULL);
  for (int i = 0; i < children; i++)
    {
      pid_t child = fork ();
      if (child == 0)
        _exit (in_child ());
      int status;
      if (waitpid (child, &status, 0) < 0 || status)
        {
          fprintf (stderr, "child %d ended with %d\n", i, status);
          return 1;
        }
    }
  int answer[2];
  if (pipe (answer))
    return 1;
  if (fork () == 0)
    {
      int wrong = in_child ();
      if (write (answer[1], wrong ? "!" : ".", 1) != 1)
        return 1;
      for (;;)
        pause ();
    }
  char byte;
  if (read (answer[0], &byte, 1) != 1 || byte != '.')
    return 1;
  printf ("%d\n", getpid ());
  fflush (stdout);
  char line[2];
  return fgets (line, sizeof line, stdin) ? 0 : 1;
}
