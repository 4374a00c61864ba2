/* Nanoseconds per driver call, as one JSON object: the same program runs on the bare driver and
   through the shim. Each figure is the median of its batches; a name with "/2" is two threads at
   once. With "idle": launches once, says so, and waits to be killed. With "pairs DRIVER": what a
   launch takes more through the shim than by the library DRIVER that the shim has loaded, the
   median of pairs of batches that take turns in one process: so small a difference is less than
   what two processes differ by.  */

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 21
#define PAIRS 201
#define LAUNCHES 200

static CUcontext context;
static CUfunction function;
typedef CUresult launch_type (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void **, void **);
static launch_type *launch, *launch_of_driver;
static CUresult (*synchronize) (void);
static CUresult (*alloc) (CUdeviceptr *, size_t);
static CUresult (*release) (CUdeviceptr);
static CUresult (*info) (size_t *, size_t *);
static CUresult (*copy) (CUdeviceptr, CUdeviceptr, size_t, CUstream);
static CUdeviceptr memory;
static CUresult (*set_current) (CUcontext);
static CUresult (*alloc_async) (CUdeviceptr *, size_t, CUstream);
static CUresult (*free_async) (CUdeviceptr, CUstream);
static CUgraphExec graph;
static CUresult (*launch_graph) (CUgraphExec, CUstream);
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
one_graph (void)
{
  must (launch_graph (graph, NULL), "cuGraphLaunch");
}

static void
one_alloc_async (void)
{
  CUdeviceptr pointer;
  must (alloc_async (&pointer, 4096, NULL), "cuMemAllocAsync");
  must (free_async (pointer, NULL), "cuMemFreeAsync");
}

static void
one_alloc (void)
{
  CUdeviceptr pointer;
  must (alloc (&pointer, 4096), "cuMemAlloc");
  must (release (pointer), "cuMemFree");
}

static void
one_copy (void)
{
  must (copy (memory, memory + 64, 64, NULL), "cuMemcpyDtoDAsync");
}

static void
one_info (void)
{
  size_t free_bytes, total;
  must (info (&free_bytes, &total), "cuMemGetInfo");
}

/* What one call costs without the call: the loop, and the check of its result.  */
static void
no_call (void)
{
  static volatile CUresult success = CUDA_SUCCESS;
  must (success, "no call");
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

static double
batch_ns (launch_type *way)
{
  double begin = now_ns ();
  for (int i = 0; i < LAUNCHES; i++)
    must (way (function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
  double ns = (now_ns () - begin) / LAUNCHES;
  must (synchronize (), "cuCtxSynchronize");
  return ns;
}

static void *
run_pairs (void *argument)
{
  double *added = argument;
  must (set_current (context), "cuCtxSetCurrent");
  for (int pair = 0; pair < PAIRS; pair++)
    {
      double bare = batch_ns (launch_of_driver);
      added[pair] = batch_ns (launch) - bare;
    }
  qsort (added, PAIRS, sizeof added[0], ascending);
  return NULL;
}

static void
measure_pairs (const char *driver)
{
  static double alone[PAIRS], left[PAIRS], right[PAIRS];
  void *library = dlopen (driver, RTLD_NOW | RTLD_NOLOAD);
  if (!library)
    {
      fprintf (stderr, "calls: %s is not loaded\n", driver);
      exit (1);
    }
  launch_of_driver = find (library, "cuLaunchKernel");
  run_pairs (alone);
  pthread_t thread;
  if (pthread_create (&thread, NULL, run_pairs, left) != 0)
    exit (1);
  run_pairs (right);
  pthread_join (thread, NULL);
  printf (", \"cuLaunchKernel\": %.2f, \"cuLaunchKernel/2\": %.2f}\n", alone[PAIRS / 2],
          (left[PAIRS / 2] + right[PAIRS / 2]) / 2);
}

/* A graph of one empty kernel; where the driver can't make one, any handle serves its launch.  */
static void
make_graph (void *library)
{
  CUgraph made;
  CUgraphNode node;
  CUDA_KERNEL_NODE_PARAMS kernel = { .func = function, 1, 1, 1, 1, 1, 1 };
  CUresult (*create) (CUgraph *, unsigned) = dlsym (library, "cuGraphCreate");
  CUresult (*add) (CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
                   const CUDA_KERNEL_NODE_PARAMS *) = dlsym (library, "cuGraphAddKernelNode_v2");
  CUresult (*instantiate) (CUgraphExec *, CUgraph, unsigned long long)
      = dlsym (library, "cuGraphInstantiateWithFlags");
  launch_graph = find (library, "cuGraphLaunch");
  CUresult rc = CUDA_ERROR_NOT_FOUND; /* as the shim answers for a driver without it */
  if (create && add && instantiate && create (&made, 0) == CUDA_SUCCESS)
    rc = add (&node, made, NULL, 0, &kernel);
  if (rc == CUDA_ERROR_NOT_FOUND)
    {
      graph = (CUgraphExec) &graph;
      return;
    }
  must (rc, "cuGraphAddKernelNode");
  must (instantiate (&graph, made, 0), "cuGraphInstantiateWithFlags");
}

int
main (int argc, char **argv)
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
  double loaded = now_ns () - begin;
  printf ("{\"load + cuInit\": %.1f", loaded);
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
  if (argc == 3 && !strcmp (argv[1], "pairs"))
    {
      measure_pairs (argv[2]);
      return 0;
    }
  if (argc > 1)
    {
      one_launch ();
      must (synchronize (), "cuCtxSynchronize");
      puts ("}");
      fflush (stdout);
      for (;;)
        pause ();
    }
  measure ("cuLaunchKernel", one_launch, 200);
  make_graph (library);
  if (launch_graph (graph, NULL) == CUDA_SUCCESS)
    measure ("cuGraphLaunch", one_graph, 200);
  copy = find (library, "cuMemcpyDtoDAsync_v2");
  must (alloc (&memory, 128), "cuMemAlloc");
  measure ("cuMemcpyDtoDAsync", one_copy, 200);
  alloc_async = find (library, "cuMemAllocAsync");
  free_async = find (library, "cuMemFreeAsync");
  measure ("cuMemAlloc + cuMemFree", one_alloc, 1000);
  measure ("cuMemAllocAsync + cuMemFreeAsync", one_alloc_async, 1000);
  measure ("no call", no_call, 1000);
  measure ("cuMemGetInfo", one_info, 1000);
  measure ("cuGetProcAddress", one_address, 1000);
  CUdeviceptr *many = calloc (10000, sizeof *many);
  for (int i = 0; many && i < 10000; i++)
    must (alloc (&many[i], 4096), "cuMemAlloc");
  measure ("cuMemAlloc + cuMemFree, 10000 live", one_alloc, 1000);
  printf ("}\n");
  return 0;
}
