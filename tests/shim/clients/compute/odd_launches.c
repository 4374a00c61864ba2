/* odd_launches WHAT: launches of a 50 us kernel of known cost.
   refused    100000 launches that the driver refuses
   threads    100 threads, one after the other, that launch once
   destroyed  10 contexts that are destroyed over a kernel of 30 ms
   two_gpus   1000 launches on each of two GPUs, which are current by turns
   killed     one launch, then SIGKILL  */

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "common/gpu.h"

static const char image[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                            "//softgpu entry=spin time_ns=param:0\n"
                            ".visible .entry spin(.param .u64 nanoseconds)\n{\n ret;\n}\n";

static CUcontext context;

static CUfunction
load_spin (void)
{
  CUmodule module;
  CUfunction spin;
  MUST (cuModuleLoadData (&module, image));
  MUST (cuModuleGetFunction (&spin, module, "spin"));
  return spin;
}

static CUresult
launch (CUfunction spin, unsigned blocks, uint64_t us)
{
  uint64_t ns = us * 1000;
  void *parameters[] = { &ns };
  return cuLaunchKernel (spin, blocks, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static void *
launch_once (void *spin)
{
  MUST (cuCtxSetCurrent (context));
  MUST (launch (spin, 1, 50));
  MUST (cuCtxSynchronize ());
  return NULL;
}

static void
destroy_contexts (void)
{
  for (int i = 0; i < 10; i++)
    {
      CUcontext one;
      MUST (cuCtxCreate (&one, NULL, 0, 0));
      MUST (launch (load_spin (), 1, 30000));
      MUST (cuCtxDestroy (one));
    }
}

static void
alternate (CUfunction spin)
{
  CUcontext other;
  CUdevice device;
  MUST (cuDeviceGet (&device, 1));
  MUST (cuDevicePrimaryCtxRetain (&other, device));
  MUST (cuCtxSetCurrent (other));
  CUfunction spin_there = load_spin ();
  for (int i = 0; i < 2000; i++)
    {
      MUST (cuCtxSetCurrent (i % 2 ? other : context));
      MUST (launch (i % 2 ? spin_there : spin, 1, 50));
      if (i % 100 > 97)
        MUST (cuCtxSynchronize ());
    }
}

int
main (int argc, char **argv)
{
  if (argc != 2)
    return 2;
  context = use_gpu (0);
  CUfunction spin = load_spin ();
  for (int i = 0; i < 20; i++)
    {
      MUST (launch (spin, 1, 50));
      MUST (cuCtxSynchronize ());
    }
  if (!strcmp (argv[1], "refused"))
    for (int i = 0; i < 100000; i++)
      if (launch (spin, 0, 50) != CUDA_ERROR_INVALID_VALUE)
        return 1;
  for (int i = 0; !strcmp (argv[1], "threads") && i < 100; i++)
    {
      pthread_t thread;
      if (pthread_create (&thread, NULL, launch_once, spin) || pthread_join (thread, NULL))
        return 1;
    }
  if (!strcmp (argv[1], "destroyed"))
    destroy_contexts ();
  if (!strcmp (argv[1], "two_gpus"))
    alternate (spin);
  if (!strcmp (argv[1], "killed"))
    raise (SIGKILL);
  return 0;
}
