/* signals ROUNDS: of a slice of 1 MiB, allocates, frees, launches and looks, while a signal every
   20 us launches and looks in its handler; what is launched is a kernel and a graph that holds 4096
   bytes from then on. Prints whether many signals came, how many of their calls were refused, and
   what is free at the end.  */

#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "common/gpu.h"

#define FUNCTIONS 4096

static volatile sig_atomic_t signals, refused;

static CUgraphExec graph;

static CUresult
launch (unsigned number)
{
  /* The mock driver accepts any handle as a function; the shim measures new functions.  */
  CUfunction function = (CUfunction) ((size_t) (number % FUNCTIONS + 1) * 64);
  CUresult rc = cuLaunchKernel (function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  return rc == CUDA_SUCCESS ? cuGraphLaunch (graph, NULL) : rc;
}

static void
on_signal (int number)
{
  size_t left, total;
  (void) number;
  signals++;
  if (launch ((unsigned) signals) || cuMemGetInfo (&left, &total))
    refused++;
}

int
main (int argc, char **argv)
{
  if (argc != 2)
    return 2;
  CUgraph with_memory;
  use_gpu (0);
  MUST (cuGraphCreate (&with_memory, 0));
  MUST (cuGraphInstantiate (&graph, with_memory, 0));
  MUST (launch (0));
  struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
  struct itimerval often = { { 0, 20 }, { 0, 20 } }, never = { { 0, 0 }, { 0, 0 } };
  sigaction (SIGALRM, &action, NULL);
  setitimer (ITIMER_REAL, &often, NULL);
  size_t left, total;
  for (long i = 0; i < atol (argv[1]); i++)
    {
      CUdeviceptr piece, too_much;
      MUST (cuMemAlloc (&piece, 4096));
      MUST (launch ((unsigned) i * 7));
      if (cuMemAlloc (&too_much, (size_t) 1 << 20) != CUDA_ERROR_OUT_OF_MEMORY)
        return 1;
      MUST (cuMemFree (piece));
      MUST (cuMemGetInfo (&left, &total));
      MUST (cuCtxSynchronize ());
    }
  setitimer (ITIMER_REAL, &never, NULL);
  MUST (cuMemGetInfo (&left, &total));
  printf ("[%s, %d, %zu]\n", signals > 1000 ? "true" : "false", (int) refused, left);
  return 0;
}
