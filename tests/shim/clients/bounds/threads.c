/* threads LIMIT CHILDREN: eight threads allocate and free in a context each pushes and pops, while
   children are made by fork, vfork and exec. Prints what is free at the end.  */

#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/gpu.h"

#define THREADS 8
#define ROUNDS 300

extern char **environ;
static CUcontext context;
static size_t limit;
static int children_made;

static void *
work (void *argument)
{
  unsigned seed = (unsigned) (size_t) argument;
  /* No thread ends while children are made: in a child, TSan reports races with threads that had
     ended and were not joined.  */
  for (int i = 0; i < ROUNDS || !__atomic_load_n (&children_made, __ATOMIC_ACQUIRE); i++)
    {
      CUdeviceptr pointer[4];
      int count = 0;
      MUST (cuCtxPushCurrent (context));
      for (int j = 0; j < 4; j++)
        if (cuMemAlloc (&pointer[count], (size_t) rand_r (&seed) % (limit / 8) + 1) == CUDA_SUCCESS)
          count++;
      while (count)
        MUST (cuMemFree (pointer[--count]));
      MUST (cuCtxPopCurrent (NULL));
    }
  return NULL;
}

int
main (int argc, char **argv)
{
  pthread_t threads[THREADS];
  if (argc == 2 && !strcmp (argv[1], "child"))
    return 0;
  if (argc != 3)
    return 2;
  limit = strtoull (argv[1], NULL, 10);
  context = use_gpu (0);
  for (size_t i = 0; i < THREADS; i++)
    if (pthread_create (&threads[i], NULL, work, (void *) (i + 1)))
      return 1;
  for (int i = 0; i < atoi (argv[2]); i++)
    {
      pid_t child;
      char *arguments[] = { argv[0], (char *) "child", NULL };
      if (i % 3 == 0)
        child = fork ();
      else if (i % 3 == 1)
        child = vfork ();
      else if (posix_spawn (&child, arguments[0], NULL, NULL, arguments, environ))
        return 1;
      if (!child && i % 3 == 1)
        execv (arguments[0], arguments);
      if (!child)
        _exit (0);
      int status;
      if (waitpid (child, &status, 0) != child || status)
        return 1;
    }
  __atomic_store_n (&children_made, 1, __ATOMIC_RELEASE);
  for (int i = 0; i < THREADS; i++)
    pthread_join (threads[i], NULL);
  size_t left, total;
  MUST (cuMemGetInfo (&left, &total));
  printf ("%zu\n", left);
  return 0;
}
