/* pools BYTES THREADS ROUNDS: threads allocate from two pools and free, wait and trim at random.
   Prints the bytes that are charged in the end.  */
#include "common/gpu.h"

#include <pthread.h>

#define HELD 8

static CUcontext context;
static CUmemoryPool pools[2];
static size_t bytes;
static int rounds;

static void *
work (void *argument)
{
  unsigned random = (unsigned) (size_t) argument + 1;
  CUdeviceptr held[HELD] = { 0 };
  CUstream stream;
  MUST (cuCtxSetCurrent (context));
  MUST (cuStreamCreate (&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < rounds; round++)
    {
      random = random * 1664525u + 1013904223u;
      CUdeviceptr *at = &held[(random >> 8) % HELD];
      if (*at)
        MUST (cuMemFreeAsync (*at, stream));
      *at = 0;
      size_t piece = bytes / 16 / ((random >> 16) % 7 + 1);
      CUmemoryPool pool = pools[(random >> 20) % 2];
      if (random >> 31)
        cuMemAllocFromPoolAsync (at, piece, pool, stream); /* or there is no room */
      else if ((random >> 24) % 8 == 0)
        MUST (cuStreamSynchronize (stream));
      else if ((random >> 24) % 8 == 1)
        MUST (cuMemPoolTrimTo (pool, 0));
    }
  for (int i = 0; i < HELD; i++)
    if (held[i])
      MUST (cuMemFreeAsync (held[i], stream));
  MUST (cuStreamSynchronize (stream));
  MUST (cuStreamDestroy (stream));
  return NULL;
}

int
main (int argc, char **argv)
{
  bytes = argc > 1 ? strtoull (argv[1], NULL, 10) : 0;
  int threads = argc > 2 ? atoi (argv[2]) : 1;
  rounds = argc > 3 ? atoi (argv[3]) : 1;
  CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                           .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
  pthread_t made[threads];
  size_t free_bytes, total;
  MUST (cuInit (0));
  MUST (cuDevicePrimaryCtxRetain (&context, 0));
  MUST (cuCtxSetCurrent (context));
  for (int i = 0; i < 2; i++)
    MUST (cuMemPoolCreate (&pools[i], &props));
  for (int i = 0; i < threads; i++)
    pthread_create (&made[i], NULL, work, (void *) (size_t) i);
  for (int i = 0; i < threads; i++)
    pthread_join (made[i], NULL);
  MUST (cuCtxSynchronize ());
  MUST (cuMemGetInfo (&free_bytes, &total));
  printf ("%zu\n", total - free_bytes);
  for (int i = 0; i < 2; i++)
    MUST (cuMemPoolDestroy (pools[i]));
  return 0;
}
