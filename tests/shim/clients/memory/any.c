/* any MOST SEED [ROUNDS]: random calls of every family that allocate and free memory, each piece at
   most MOST bytes. On SIGUSR1 it prints "still" and waits; with ROUNDS it ends after so many. A
   call may be refused; any other error fails.  */

#include <signal.h>
#include <unistd.h>

#include "common/gpu.h"

#define PIECES 24

enum family
{
  NONE,
  POINTER,
  STREAM,
  POOL,
  PITCH,
  MANAGED,
  PHYSICAL,
  ARRAY,
  MIPMAPPED,
  NODE,
  FAMILIES,
};

static struct
{
  enum family family;
  CUdeviceptr pointer;
  CUmemGenericAllocationHandle handle;
  CUarray array;
  CUmipmappedArray mipmapped;
} held[PIECES];

static CUstream stream;
static CUmemoryPool pool;
static volatile sig_atomic_t asked;

static void
on_signal (int number)
{
  asked = number;
}

static void
give_back (int at)
{
  switch (held[at].family)
    {
    case STREAM:
    case POOL:
      MUST (cuMemFreeAsync (held[at].pointer, stream));
      break;
    case PHYSICAL:
      MUST (cuMemRelease (held[at].handle));
      break;
    case ARRAY:
      MUST (cuArrayDestroy (held[at].array));
      break;
    case MIPMAPPED:
      MUST (cuMipmappedArrayDestroy (held[at].mipmapped));
      break;
    default:
      MUST (cuMemFree (held[at].pointer));
    }
  held[at].family = NONE;
}

/* A graph that allocates one piece, and allocates and frees another. The first outlives the graph.
 */
static CUresult
run_graph (CUdeviceptr *pointer, size_t bytes)
{
  CUgraph graph;
  CUgraphExec exec;
  CUdeviceptr passing;
  MUST (cuStreamBeginCapture (stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST (cuMemAllocAsync (&passing, bytes / 2 + 1, stream));
  MUST (cuMemFreeAsync (passing, stream));
  MUST (cuMemAllocAsync (pointer, bytes, stream));
  MUST (cuStreamEndCapture (stream, &graph));
  MUST (cuGraphInstantiateWithFlags (&exec, graph, 0));
  CUresult rc = cuGraphLaunch (exec, stream);
  MUST (cuStreamSynchronize (stream));
  MUST (cuGraphExecDestroy (exec));
  MUST (cuGraphDestroy (graph));
  if (rand () % 4 == 0)
    MUST (cuDeviceGraphMemTrim (0));
  return rc;
}

static CUresult
take (int at, enum family family, size_t bytes)
{
  size_t pitch;
  CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
  switch (family)
    {
    case STREAM:
      return cuMemAllocAsync (&held[at].pointer, bytes, stream);
    case POOL:
      return cuMemAllocFromPoolAsync (&held[at].pointer, bytes, pool, stream);
    case PITCH:
      return cuMemAllocPitch (&held[at].pointer, &pitch, bytes / 64 + 1, 64, 4);
    case MANAGED:
      return cuMemAllocManaged (&held[at].pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    case PHYSICAL:
      return cuMemCreate (&held[at].handle, ((bytes >> 21) + 1) << 21, &prop, 0);
    case ARRAY:
      return cuArrayCreate (&held[at].array, &(CUDA_ARRAY_DESCRIPTOR){ .Width = bytes % 999 + 1,
                                                                       .Height = bytes / 9999 + 1,
                                                                       .Format = CU_AD_FORMAT_HALF,
                                                                       .NumChannels = 2 });
    case MIPMAPPED:
      return cuMipmappedArrayCreate (
          &held[at].mipmapped,
          &(CUDA_ARRAY3D_DESCRIPTOR){ .Width = 61,
                                      .Height = 33,
                                      .Depth = bytes % 97 + 1,
                                      .Format = CU_AD_FORMAT_FLOAT,
                                      .NumChannels = 4,
                                      .Flags = bytes % 2 ? CUDA_ARRAY3D_LAYERED : 0 },
          (unsigned) (bytes % 5) + 1);
    case NODE:
      return run_graph (&held[at].pointer, bytes);
    default:
      return cuMemAlloc (&held[at].pointer, bytes);
    }
}

int
main (int argc, char **argv)
{
  if (argc != 3 && argc != 4)
    return 2;
  size_t most = strtoull (argv[1], NULL, 10);
  srand ((unsigned) atoi (argv[2]));
  signal (SIGUSR1, on_signal);
  use_gpu (0);
  MUST (cuStreamCreate (&stream, CU_STREAM_NON_BLOCKING));
  CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                           .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
  MUST (cuMemPoolCreate (&pool, &props));
  if (write (STDOUT_FILENO, "ready\n", 6) < 0)
    return 1;
  long rounds = argc == 4 ? atol (argv[3]) : -1;
  while (!asked && rounds--)
    {
      int at = rand () % PIECES;
      if (held[at].family)
        give_back (at);
      enum family family = POINTER + rand () % (FAMILIES - POINTER);
      CUresult rc = take (at, family, (size_t) rand () % most + 1);
      if (rc == CUDA_SUCCESS)
        held[at].family = family;
      else if (rc != CUDA_ERROR_OUT_OF_MEMORY)
        MUST (rc);
    }
  MUST (cuStreamSynchronize (stream));
  if (write (STDOUT_FILENO, "still\n", 6) < 0)
    return 1;
  while (argc == 3)
    pause ();
  return 0;
}
