/* huge: sizes that no memory has, negative ones among them. Prints what each call answered.  */

#include "common/gpu.h"

int
main (void)
{
  CUdeviceptr pointer;
  size_t pitch;
  CUarray array;
  CUmipmappedArray mipmapped;
  CUexternalMemory external;
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC import = { .size = (unsigned long long) -4096 };
  CUDA_ARRAY_DESCRIPTOR flat = { .Width = (size_t) 1 << 40,
                                 .Height = (size_t) 1 << 40,
                                 .Format = CU_AD_FORMAT_FLOAT,
                                 .NumChannels = 4 };
  CUDA_ARRAY3D_DESCRIPTOR deep = { .Width = (size_t) -1,
                                   .Height = 1,
                                   .Depth = 1,
                                   .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                   .NumChannels = 4 };
  use_gpu (0);
  printf ("[%d, ", (int) cuMemAlloc (&pointer, (size_t) -1));
  printf ("%d, ", (int) cuMemAllocAsync (&pointer, (size_t) -4096, NULL));
  printf ("%d, ", (int) cuMemAllocPitch (&pointer, &pitch, (size_t) -1, (size_t) -1, 4));
  printf ("%d, ", (int) cuMemCreate (&handle, (size_t) -(1 << 21), &prop, 0));
  printf ("%d, ", (int) cuArrayCreate (&array, &flat));
  printf ("%d, ", (int) cuArray3DCreate (&array, &deep));
  printf ("%d, ", (int) cuMipmappedArrayCreate (&mipmapped, &deep, 99));
  printf ("%d]\n", (int) cuImportExternalMemory (&external, &import));
  return 0;
}
