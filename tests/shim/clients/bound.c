/* bound WAY LIMIT: memory of two fifths of LIMIT is mapped into a sparse array or bound to a
   multicast object and released; then it is unmapped, or the array or object ends. Prints as JSON
   what is free after each step, and how an allocation of the rest is answered while the memory is
   in use.

   WAY: array, parts (of an array), context (the array ends with it), mipmapped, handle, handle_v2,
   address, address_v2 (of a multicast object).  */

#include <string.h>

#include "gpu.h"

static const char *way;
static size_t bytes;
static CUstream stream;
static CUarray array;
static CUmipmappedArray mipmapped;
static CUmemGenericAllocationHandle object;
static const char *before = "{";

static int
is (const char *name)
{
  return strcmp (way, name) == 0;
}

static void
say (const char *step, size_t number)
{
  printf ("%s\"%s\": %zu", before, step, number);
  before = ", ";
}

static void
say_free (const char *step)
{
  size_t left, total;
  MUST (cuMemGetInfo (&left, &total));
  say (step, left);
}

static CUmemGenericAllocationHandle
create (void)
{
  CUmemGenericAllocationHandle memory;
  CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
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
      one.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
      one.resource.mipmap = mipmapped;
      one.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
      one.subresource.miptail.size = bytes;
    }
  else
    {
      one.resourceType = CU_RESOURCE_TYPE_ARRAY;
      one.resource.array = array;
      one.subresource.sparseLevel.offsetY = y;
      one.subresource.sparseLevel.extentWidth = 1024;
      one.subresource.sparseLevel.extentHeight = height;
      one.subresource.sparseLevel.extentDepth = 1;
    }
  MUST (cuMemMapArrayAsync (&one, 1, stream));
}

static void
make (void)
{
  CUDA_ARRAY3D_DESCRIPTOR shape = { .Width = 1024,
                                    .Height = 1024,
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .NumChannels = 1,
                                    .Flags = CUDA_ARRAY3D_SPARSE };
  CUmulticastObjectProp prop = { .numDevices = 1, .size = bytes };
  if (is ("array") || is ("parts") || is ("context"))
    MUST (cuArray3DCreate (&array, &shape));
  else if (is ("mipmapped"))
    MUST (cuMipmappedArrayCreate (&mipmapped, &shape, 2));
  else
    {
      MUST (cuMulticastCreate (&object, &prop));
      MUST (cuMulticastAddDevice (object, 0));
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
  else if (is ("address") || is ("address_v2"))
    {
      /* Two mappings of one handle, side by side.  */
      CUdeviceptr start = 0x7e0000000000;
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
      map (0, 512, memory);
      map (512, 512, memory);
    }
  else
    map (0, 1024, memory);
  MUST (cuMemRelease (memory));
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
      CUdeviceptr start = 0x7d0000000000;
      MUST (cuMemMap (start, bytes, 0, object, 0));
      MUST (cuMemRelease (object));
      say_free ("object released");
      MUST (cuMemUnmap (start, bytes));
    }
}

int
main (int argc, char **argv)
{
  if (argc != 3)
    return 2;
  way = argv[1];
  bytes = strtoull (argv[2], NULL, 10) / 1024 * 400;
  use_gpu (0);
  MUST (cuStreamCreate (&stream, 0));
  make ();
  bind ();
  say_free ("released");
  CUdeviceptr rest;
  say ("rest", (size_t) cuMemAlloc (&rest, bytes * 2));
  if (object)
    MUST (cuMulticastUnbind (object, 0, 0, bytes));
  else
    {
      map (0, 1024, 0);
      say_free ("unmapped by the stream in a while");
      if (is ("context"))
        bytes /= 4; /* of what is still to be unmapped and of more */
      else
        MUST (cuStreamSynchronize (stream));
    }
  if (!is ("context"))
    say_free ("unmapped");
  bind ();
  say_free ("released again");
  end ();
  say_free ("ended");
  printf ("}\n");
  return 0;
}
