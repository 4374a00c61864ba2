/* leaks FAMILY LIMIT: three pieces of two fifths of LIMIT, one given back, one more. Prints as JSON
   what each call answered, and what is free after the third.

   The right answer is two granted, the third refused, and room for one more after the free.  */

#include <string.h>
#include <unistd.h>

#include "common/gpu.h"

static size_t piece;
static CUdevice device;
static CUstream stream;
static CUmemoryPool pool;

static struct
{
  CUdeviceptr pointer;
  CUarray array;
  CUmipmappedArray mipmapped;
  CUmemGenericAllocationHandle handle;
  CUexternalMemory external;
  CUgraph graph;
  CUgraphExec exec;
} held[4];

/* PIECE as an array of 1024 by 1024 bytes, so many deep.  */
static CUDA_ARRAY3D_DESCRIPTOR
deep (size_t depth, unsigned flags)
{
  return (CUDA_ARRAY3D_DESCRIPTOR){ .Width = 1024,
                                    .Height = 1024,
                                    .Depth = depth,
                                    .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                    .NumChannels = 1,
                                    .Flags = flags };
}

static CUresult
take_alloc (int i)
{
  return cuMemAlloc (&held[i].pointer, piece);
}

static CUresult
drop_pointer (int i)
{
  return cuMemFree (held[i].pointer);
}

static CUresult
take_pitch (int i)
{
  size_t pitch;
  return cuMemAllocPitch (&held[i].pointer, &pitch, 4096, piece / 4096, 4);
}

static CUresult
take_managed (int i)
{
  return cuMemAllocManaged (&held[i].pointer, piece, CU_MEM_ATTACH_GLOBAL);
}

static CUresult
take_async (int i)
{
  return cuMemAllocAsync (&held[i].pointer, piece, stream);
}

static CUresult
drop_async (int i)
{
  return cuMemFreeAsync (held[i].pointer, stream);
}

static CUresult
take_own_pool (int i)
{
  CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                           .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device } };
  if (!pool)
    MUST (cuMemPoolCreate (&pool, &props));
  return cuMemAllocFromPoolAsync (&held[i].pointer, piece, pool, stream);
}

static CUresult
take_default_pool (int i)
{
  if (!pool)
    MUST (cuDeviceGetDefaultMemPool (&pool, device));
  return cuMemAllocFromPoolAsync (&held[i].pointer, piece, pool, stream);
}

static CUresult
take_array (int i)
{
  /* Sixteen bytes a texel: a reader of bits for bytes would be wrong by eight.  */
  CUDA_ARRAY_DESCRIPTOR wanted = {
    .Width = 1024, .Height = piece / 1024 / 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4
  };
  return cuArrayCreate (&held[i].array, &wanted);
}

static CUresult
take_array_3d (int i)
{
  CUDA_ARRAY3D_DESCRIPTOR wanted = deep (piece >> 20, 0);
  return cuArray3DCreate (&held[i].array, &wanted);
}

static CUresult
drop_array (int i)
{
  return cuArrayDestroy (held[i].array);
}

static CUresult
take_mipmapped (int i)
{
  /* Four fifths, and a quarter of that in the second level: layers don't shrink.  */
  CUDA_ARRAY3D_DESCRIPTOR wanted = deep ((piece >> 20) * 4 / 5, CUDA_ARRAY3D_LAYERED);
  return cuMipmappedArrayCreate (&held[i].mipmapped, &wanted, 2);
}

static CUresult
drop_mipmapped (int i)
{
  return cuMipmappedArrayDestroy (held[i].mipmapped);
}

static CUresult
take_vmm (int i)
{
  CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device } };
  return cuMemCreate (&held[i].handle, piece, &prop, 0);
}

static CUresult
drop_vmm (int i)
{
  return cuMemRelease (held[i].handle);
}

static CUresult
take_external (int i)
{
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted
      = { .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = dup (0), .size = piece };
  return cuImportExternalMemory (&held[i].external, &wanted);
}

static CUresult
drop_external (int i)
{
  return cuDestroyExternalMemory (held[i].external);
}

static CUresult
launch (int i)
{
  if (!held[i].exec)
    MUST (cuGraphInstantiateWithFlags (&held[i].exec, held[i].graph, 0));
  return cuGraphLaunch (held[i].exec, stream);
}

static CUresult
take_node (int i)
{
  CUgraphNode node;
  CUDA_MEM_ALLOC_NODE_PARAMS params
      = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                         .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device } },
          .bytesize = piece };
  MUST (cuGraphCreate (&held[i].graph, 0));
  MUST (cuGraphAddMemAllocNode (&node, held[i].graph, NULL, 0, &params));
  held[i].pointer = params.dptr;
  return launch (i);
}

static CUresult
take_generic_node (int i)
{
  CUgraphNode node;
  CUgraphNodeParams params
      = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
          .alloc
          = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device } },
              .bytesize = piece } };
  MUST (cuGraphCreate (&held[i].graph, 0));
  MUST (cuGraphAddNode (&node, held[i].graph, NULL, NULL, 0, &params));
  held[i].pointer = params.alloc.dptr;
  return launch (i);
}

static CUresult
take_captured (int i)
{
  MUST (cuStreamBeginCapture (stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST (cuMemAllocAsync (&held[i].pointer, piece, stream));
  MUST (cuStreamEndCapture (stream, &held[i].graph));
  return launch (i);
}

/* What a graph allocated and no graph frees is freed as any memory; the device keeps it until it
   is trimmed.  */
static CUresult
drop_node (int i)
{
  CUresult rc = cuMemFreeAsync (held[i].pointer, stream);
  MUST (cuStreamSynchronize (stream));
  MUST (cuDeviceGraphMemTrim (device));
  return rc;
}

static const struct
{
  const char *name;
  CUresult (*take) (int);
  CUresult (*drop) (int);
} families[] = {
  { "cuMemAlloc", take_alloc, drop_pointer },
  { "cuMemAllocPitch", take_pitch, drop_pointer },
  { "cuMemAllocManaged", take_managed, drop_pointer },
  { "cuMemAllocAsync", take_async, drop_async },
  { "own pool", take_own_pool, drop_async },
  { "default pool", take_default_pool, drop_async },
  { "cuArrayCreate", take_array, drop_array },
  { "cuArray3DCreate", take_array_3d, drop_array },
  { "cuMipmappedArrayCreate", take_mipmapped, drop_mipmapped },
  { "cuMemCreate", take_vmm, drop_vmm },
  { "cuImportExternalMemory", take_external, drop_external },
  { "cuGraphAddMemAllocNode", take_node, drop_node },
  { "cuGraphAddNode", take_generic_node, drop_node },
  { "captured cuMemAllocAsync", take_captured, drop_node },
};

int
main (int argc, char **argv)
{
  if (argc != 3)
    return 2;
  piece = strtoull (argv[2], NULL, 10) / 1024 * 400;
  size_t at = 0, left, total;
  while (at < sizeof families / sizeof *families && strcmp (families[at].name, argv[1]))
    at++;
  if (at == sizeof families / sizeof *families)
    return 2;
  use_gpu (0);
  MUST (cuDeviceGet (&device, 0));
  MUST (cuStreamCreate (&stream, CU_STREAM_NON_BLOCKING));
  printf ("[");
  for (int i = 0; i < 3; i++)
    printf ("%d, ", (int) families[at].take (i));
  MUST (cuMemGetInfo (&left, &total));
  printf ("%zu, ", left);
  printf ("%d, ", (int) families[at].drop (0));
  printf ("%d]\n", (int) families[at].take (3));
  return 0;
}
