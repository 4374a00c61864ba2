/* bound WAY LIMIT [hold]: memory of two fifths of LIMIT on GPU 0 is mapped into an array or bound
   to a multicast object and released; then it is unmapped, or the array or object ends. Prints as
   JSON after each step what the container has free and what the software GPU counts as held, and
   how an allocation of four fifths is answered while the memory is in use. hold: stops there.

   WAY: array, parts (of an array), context (the array ends with it), mipmapped, deferred; handle,
   handle_v2, address, address_v2 (of a multicast object); look (the first step alone).  */

#include <dlfcn.h>
#include <nvml.h>
#include <string.h>
#include <unistd.h>

#include "common/gpu.h"

enum
{
  SIDE = 1024, /* of an array, in floats */
};

static const char *way;
static size_t bytes;
static CUstream stream;
static CUfunction kernel;
static CUarray array;
static CUmipmappedArray mipmapped;
static CUmemGenericAllocationHandle object;
static const char *before = "{";

/* The driver's own NVML, not the shim's.  */
static nvmlReturn_t (*memory_info) (nvmlDevice_t, nvmlMemory_t *);
static nvmlDevice_t gpu;

static int
is (const char *name)
{
  return strcmp (way, name) == 0;
}

static void
find_gpu (void)
{
  void *library = dlopen ("/usr/local/vcuda/driver/nvml", RTLD_NOW | RTLD_LOCAL);
  nvmlReturn_t (*init) (void) = library ? dlsym (library, "nvmlInit_v2") : NULL;
  nvmlReturn_t (*by_index) (unsigned, nvmlDevice_t *)
      = library ? dlsym (library, "nvmlDeviceGetHandleByIndex_v2") : NULL;
  memory_info = library ? dlsym (library, "nvmlDeviceGetMemoryInfo") : NULL;
  if (!memory_info || init () != NVML_SUCCESS || by_index (0, &gpu) != NVML_SUCCESS)
    exit (3);
}

static void
step (const char *name)
{
  size_t left, total;
  nvmlMemory_t held;
  MUST (cuMemGetInfo (&left, &total));
  if (memory_info (gpu, &held) != NVML_SUCCESS)
    exit (3);
  printf ("%s\"%s\": [%zu, %llu]", before, name, left, held.used);
  before = ", ";
}

static CUmemGenericAllocationHandle
create (void)
{
  CUmemGenericAllocationHandle memory;
  CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
  if (!object)
    prop.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  MUST (cuMemCreate (&memory, bytes, &prop, 0));
  return memory;
}

/* The rows from Y on: of a mapping where MEMORY is not 0.  */
static void
map (unsigned int y, unsigned int height, CUmemGenericAllocationHandle memory)
{
  CUarrayMapInfo one
      = { .memOperationType = memory ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP,
          .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
          .memHandle = { memory },
          .deviceBitMask = 1 };
  if (is ("mipmapped"))
    {
      CUDA_ARRAY_SPARSE_PROPERTIES properties;
      MUST (cuMipmappedArrayGetSparseProperties (&properties, mipmapped));
      one.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
      one.resource.mipmap = mipmapped;
      one.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
      one.subresource.miptail.size = properties.miptailSize;
    }
  else
    {
      one.resourceType = CU_RESOURCE_TYPE_ARRAY;
      one.resource.array = array;
      one.subresource.sparseLevel.offsetY = y;
      one.subresource.sparseLevel.extentWidth = SIDE;
      one.subresource.sparseLevel.extentHeight = height;
      one.subresource.sparseLevel.extentDepth = 1;
    }
  MUST (cuMemMapArrayAsync (&one, 1, stream));
}

static void
make (void)
{
  CUDA_ARRAY3D_DESCRIPTOR shape
      = { .Width = SIDE,
          .Height = SIDE,
          .Format = CU_AD_FORMAT_FLOAT,
          .NumChannels = 1,
          .Flags = is ("deferred") ? CUDA_ARRAY3D_DEFERRED_MAPPING : CUDA_ARRAY3D_SPARSE };
  CUmulticastObjectProp prop = { .numDevices = 2, .size = bytes };
  if (is ("mipmapped"))
    MUST (cuMipmappedArrayCreate (&mipmapped, &shape, 11));
  else if (strncmp (way, "handle", 6) && strncmp (way, "address", 7))
    MUST (cuArray3DCreate (&array, &shape));
  else
    {
      MUST (cuMulticastCreate (&object, &prop));
      MUST (cuMulticastAddDevice (object, 0));
      MUST (cuMulticastAddDevice (object, 1));
    }
}

/* Binds new memory, and releases it.  */
static void
bind (void)
{
  CUmemGenericAllocationHandle memory = create ();
  if (is ("handle"))
    MUST (cuMulticastBindMem (object, 0, memory, 0, bytes, 0));
  else if (is ("handle_v2"))
    MUST (cuMulticastBindMem_v2 (object, 0, 0, memory, 0, bytes, 0));
  else if (object)
    {
      /* Two mappings of one handle, side by side.  */
      CUdeviceptr start;
      MUST (cuMemAddressReserve (&start, bytes, 0, 0, 0));
      MUST (cuMemMap (start, bytes / 2, 0, memory, 0));
      MUST (cuMemMap (start + bytes / 2, bytes / 2, bytes / 2, memory, 0));
      if (is ("address"))
        MUST (cuMulticastBindAddr (object, 0, start, bytes, 0));
      else
        MUST (cuMulticastBindAddr_v2 (object, 0, 0, start, bytes, 0));
      MUST (cuMemUnmap (start, bytes));
    }
  else if (is ("parts"))
    {
      map (0, SIDE / 2, memory);
      map (SIDE / 2, SIDE / 2, memory);
    }
  else
    map (0, SIDE, memory);
  MUST (cuMemRelease (memory));
}

/* The stream unmaps when a kernel before that has ended.  */
static void
unmap_later (void)
{
  MUST (cuLaunchKernel (kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  map (0, SIDE, 0);
  step ("the stream has still to unmap");
}

static void
end (void)
{
  if (is ("context"))
    MUST (cuDevicePrimaryCtxReset (0));
  else if (array)
    MUST (cuArrayDestroy (array));
  else if (mipmapped)
    MUST (cuMipmappedArrayDestroy (mipmapped));
  else
    {
      CUdeviceptr start;
      MUST (cuMemAddressReserve (&start, bytes, 0, 0, 0));
      MUST (cuMemMap (start, bytes, 0, object, 0));
      MUST (cuMemRelease (object));
      step ("object released");
      MUST (cuMemUnmap (start, bytes));
    }
}

int
main (int argc, char **argv)
{
  if (argc < 3)
    return 2;
  way = argv[1];
  bytes = strtoull (argv[2], NULL, 10) / 1024 * 400;
  use_gpu (0);
  find_gpu ();
  step ("start");
  if (!is ("look"))
    {
      CUmodule module;
      MUST (cuModuleLoadData (&module, "//softgpu entry=work time_ns=50000000\n"
                                       ".version 7.0\n.target sm_50\n.address_size 64\n"
                                       ".visible .entry work() { ret; }\n"));
      MUST (cuModuleGetFunction (&kernel, module, "work"));
      MUST (cuStreamCreate (&stream, 0));
      make ();
      bind ();
      step ("released");
      if (argc > 3)
        {
          puts ("}");
          fflush (stdout);
          pause ();
        }
      CUdeviceptr rest;
      printf (", \"rest\": %d", (int) cuMemAlloc (&rest, bytes * 2));
      if (object)
        MUST (cuMulticastUnbind (object, 0, 0, bytes));
      else
        unmap_later ();
      if (is ("context"))
        bytes /= 4; /* of what is still to be unmapped and of more */
      else
        {
          MUST (cuStreamSynchronize (stream));
          step ("unmapped");
        }
      bind ();
      step ("released again");
      end ();
      step ("ended");
    }
  puts ("}");
  return 0;
}
