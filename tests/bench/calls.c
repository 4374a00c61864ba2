/* Nanoseconds per driver call, as one JSON object: the same program runs on the bare driver and
   through the shim. Each figure is the median of its batches; a name with "/2" is two threads at
   once.  */

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCHES 21

static CUcontext context;
static CUfunction function;
static CUresult (*launch) (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, CUstream, void **, void **);
static CUresult (*synchronize) (void);
static CUresult (*alloc) (CUdeviceptr *, size_t);
static CUresult (*release) (CUdeviceptr);
static CUresult (*info) (size_t *, size_t *);
static CUresult (*set_current) (CUcontext);
static CUresult (*address) (const char *, void **, int, cuuint64_t,
                            CUdriverProcAddressQueryResult *);

static const char module_text[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                                  "//softgpu entry=nothing time_ns=0\n"
                                  ".visible .entry nothing()\n{\n ret;\n}\n";

static double
now_ns (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC, &now);
  return (double) now.tv_sec * 1e9 + (double) now.tv_nsec;
}

static void
must (CUresult rc, const char *what)
{
  if (rc == CUDA_SUCCESS)
    return;
  fprintf (stderr, "calls: %s: CUDA error %d\n", what, (int) rc);
  exit (1);
}

static void *
find (void *library, const char *name)
{
  void *found = dlsym (library, name);
  if (!found)
    {
      fprintf (stderr, "calls: %s: no such symbol\n", name);
      exit (1);
    }
  return found;
}

static void
one_launch (void)
{
  must (launch (function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
}

static void
one_alloc (void)
{
  CUdeviceptr pointer;
  must (alloc (&pointer, 4096), "cuMemAlloc");
  must (release (pointer), "cuMemFree");
}

static void
one_info (void)
{
  size_t free_bytes, total;
  must (info (&free_bytes, &total), "cuMemGetInfo");
}

static void
one_address (void)
{
  void *pointer;
  must (address ("cuMemAlloc", &pointer, 12000, 0, NULL), "cuGetProcAddress");
}

struct work
{
  void (*call) (void);
  int times;
  double ns[BATCHES];
};

static int
ascending (const void *left, const void *right)
{
  double a = *(const double *) left, b = *(const double *) right;
  return (a > b) - (a < b);
}

static void *
run (void *argument)
{
  struct work *work = argument;
  must (set_current (context), "cuCtxSetCurrent");
  for (int batch = 0; batch < BATCHES; batch++)
    {
      double begin = now_ns ();
      for (int i = 0; i < work->times; i++)
        work->call ();
      work->ns[batch] = (now_ns () - begin) / work->times;
      must (synchronize (), "cuCtxSynchronize");
    }
  qsort (work->ns, BATCHES, sizeof work->ns[0], ascending);
  return NULL;
}

static void
measure (const char *name, void (*call) (void), int times)
{
  struct work alone = { .call = call, .times = times };
  struct work left = alone, right = alone;
  run (&alone);
  pthread_t thread;
  if (pthread_create (&thread, NULL, run, &left) != 0)
    exit (1);
  run (&right);
  pthread_join (thread, NULL);
  printf (", \"%s\": %.1f, \"%s/2\": %.1f", name, alone.ns[BATCHES / 2], name,
          (left.ns[BATCHES / 2] + right.ns[BATCHES / 2]) / 2);
}

int
main (void)
{
  double begin = now_ns ();
  void *library = dlopen ("libcuda.so.1", RTLD_NOW);
  if (!library)
    {
      fprintf (stderr, "calls: %s\n", dlerror ());
      return 1;
    }
  CUresult (*init) (unsigned) = find (library, "cuInit");
  must (init (0), "cuInit");
  printf ("{\"load + cuInit\": %.1f", now_ns () - begin);
  CUresult (*retain) (CUcontext *, CUdevice) = find (library, "cuDevicePrimaryCtxRetain");
  CUresult (*load) (CUmodule *, const void *) = find (library, "cuModuleLoadData");
  CUresult (*get) (CUfunction *, CUmodule, const char *) = find (library, "cuModuleGetFunction");
  launch = find (library, "cuLaunchKernel");
  synchronize = find (library, "cuCtxSynchronize");
  alloc = find (library, "cuMemAlloc_v2");
  release = find (library, "cuMemFree_v2");
  info = find (library, "cuMemGetInfo_v2");
  set_current = find (library, "cuCtxSetCurrent");
  address = find (library, "cuGetProcAddress_v2");
  CUmodule module;
  must (retain (&context, 0), "cuDevicePrimaryCtxRetain");
  must (set_current (context), "cuCtxSetCurrent");
  must (load (&module, module_text), "cuModuleLoadData");
  must (get (&function, module, "nothing"), "cuModuleGetFunction");
  measure ("cuLaunchKernel", one_launch, 200);
  measure ("cuMemAlloc + cuMemFree", one_alloc, 1000);
  measure ("cuMemGetInfo", one_info, 1000);
  measure ("cuGetProcAddress", one_address, 1000);
  CUdeviceptr *many = calloc (10000, sizeof *many);
  for (int i = 0; many && i < 10000; i++)
    must (alloc (&many[i], 4096), "cuMemAlloc");
  measure ("cuMemAlloc + cuMemFree, 10000 live", one_alloc, 1000);
  printf ("}\n");
  return 0;
}
