/* contexts SEED: random calls that create and destroy contexts on both GPUs, with memory in them,
   and forks with children that use the parent's contexts. On SIGUSR1 it prints how many contexts it
   has on each GPU, and waits. A context may be refused for lack of memory; any other error fails.
 */

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/gpu.h"

#define MADE 12
#define GPUS 2

static CUcontext made[MADE];
static CUdevice device_of[MADE];
static unsigned retained[GPUS];
static volatile sig_atomic_t asked;

static void
on_signal (int number)
{
  asked = number;
}

/* CUDA cannot be used in a forked child: its calls must not change what the parent holds.  */
static void
meddle (void)
{
  CUcontext context;
  CUdeviceptr memory;
  for (int at = 0; at < MADE; at++)
    if (made[at])
      cuCtxDestroy (made[at]);
  for (CUdevice device = 0; device < GPUS; device++)
    {
      cuDevicePrimaryCtxRelease (device);
      cuDevicePrimaryCtxReset (device);
      cuDevicePrimaryCtxRetain (&context, device);
      cuCtxCreate (&context, NULL, 0, device);
      cuMemAlloc (&memory, 1 << 20);
    }
}

static void
fork_one (void)
{
  pid_t child = fork ();
  if (child == 0)
    {
      meddle ();
      _exit (0);
    }
  int status;
  while (waitpid (child, &status, 0) < 0)
    continue;
  if (status)
    exit (1);
}

/* CONTEXT is current, in no other thread.  */
static void
allocate_in (CUcontext context)
{
  CUdeviceptr memory;
  MUST (cuCtxSetCurrent (context));
  CUresult rc = cuMemAlloc (&memory, (size_t) rand () % (8 << 20) + 1);
  if (rc != CUDA_ERROR_OUT_OF_MEMORY)
    MUST (rc);
}

static void
make_or_destroy (int at)
{
  CUcontext popped;
  if (made[at])
    {
      MUST (cuCtxDestroy (made[at]));
      made[at] = NULL;
      return;
    }
  device_of[at] = rand () % GPUS;
  CUresult rc = cuCtxCreate (&made[at], NULL, 0, device_of[at]);
  if (rc == CUDA_ERROR_OUT_OF_MEMORY)
    {
      made[at] = NULL;
      return;
    }
  MUST (rc);
  allocate_in (made[at]);
  MUST (cuCtxPopCurrent (&popped));
}

static void
retain (CUdevice device)
{
  CUcontext context;
  CUresult rc = cuDevicePrimaryCtxRetain (&context, device);
  if (rc == CUDA_ERROR_OUT_OF_MEMORY && !retained[device])
    return;
  MUST (rc);
  retained[device]++;
  allocate_in (context);
}

static void
one_call (void)
{
  CUdevice device = rand () % GPUS;
  switch (rand () % 16)
    {
    case 0:
      fork_one ();
      break;
    case 1:
      MUST (cuDevicePrimaryCtxReset (device));
      break;
    case 2 ... 4:
      retain (device);
      break;
    case 5 ... 8:
      if (retained[device])
        {
          MUST (cuDevicePrimaryCtxRelease (device));
          retained[device]--;
        }
      break;
    default:
      make_or_destroy (rand () % MADE);
    }
}

int
main (int argc, char **argv)
{
  if (argc != 2)
    return 2;
  srand ((unsigned) atoi (argv[1]));
  signal (SIGUSR1, on_signal);
  MUST (cuInit (0));
  printf ("ready\n");
  fflush (stdout);
  while (!asked)
    one_call ();
  unsigned count[GPUS] = { retained[0] > 0, retained[1] > 0 };
  for (int at = 0; at < MADE; at++)
    if (made[at])
      count[device_of[at]]++;
  printf ("[%u, %u]\n", count[0], count[1]);
  fflush (stdout);
  for (;;)
    pause ();
}
