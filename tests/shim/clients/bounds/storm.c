/* storm PROCESSES THREADS PIECE ROUNDS: in each round every thread of every process allocates
   pieces until it is refused, all at once. Prints, per round, how many pieces were granted in all.
 */

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/gpu.h"

#define MOST 1024

struct shared
{
  pthread_barrier_t barrier;
  unsigned granted;
  unsigned wrong;
};

static struct shared *shared;
static size_t piece;
static int rounds;

static void *
take_part (void *tells)
{
  CUdeviceptr held[MOST];
  use_gpu (0);
  for (int round = 0; round < rounds; round++)
    {
      int count = 0;
      CUresult rc;
      pthread_barrier_wait (&shared->barrier);
      while (count < MOST && (rc = cuMemAlloc (&held[count], piece)) == CUDA_SUCCESS)
        count++;
      if (rc != CUDA_ERROR_OUT_OF_MEMORY)
        __atomic_fetch_add (&shared->wrong, 1, __ATOMIC_SEQ_CST);
      __atomic_fetch_add (&shared->granted, count, __ATOMIC_SEQ_CST);
      pthread_barrier_wait (&shared->barrier);
      if (tells)
        printf ("%s%u", round ? ", " : "[", shared->wrong ? 9999 : shared->granted);
      while (count)
        MUST (cuMemFree (held[--count]));
      pthread_barrier_wait (&shared->barrier);
      if (tells)
        shared->granted = 0;
    }
  if (tells)
    printf ("]\n");
  return NULL;
}

static void
start_threads (int threads, void *tells)
{
  pthread_t others[MOST];
  for (int i = 1; i < threads; i++)
    if (pthread_create (&others[i], NULL, take_part, NULL))
      exit (1);
  take_part (tells);
  for (int i = 1; i < threads; i++)
    pthread_join (others[i], NULL);
}

int
main (int argc, char **argv)
{
  if (argc != 5)
    return 2;
  int processes = atoi (argv[1]), threads = atoi (argv[2]);
  piece = strtoull (argv[3], NULL, 10);
  rounds = atoi (argv[4]);
  shared = mmap (NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_barrierattr_t attribute;
  pthread_barrierattr_init (&attribute);
  pthread_barrierattr_setpshared (&attribute, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init (&shared->barrier, &attribute, (unsigned) (processes * threads));
  for (int i = 1; i < processes; i++)
    if (fork () == 0)
      {
        start_threads (threads, NULL);
        _exit (0);
      }
  start_threads (threads, shared);
  int status;
  while (wait (&status) > 0)
    if (status)
      return 1;
  return 0;
}
