/* blocks LIVE CYCLES: on the mock driver, keeps LIVE blocks of memory mapped, and then makes, maps,
   unmaps and releases one more CYCLES times.  */

#include "common/gpu.h"

#define AT ((CUdeviceptr) 0x100000000)

static void
make (size_t number, int keep)
{
  static const CUmemAllocationProp prop
      = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
          .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
  CUmemGenericAllocationHandle handle;
  CUdeviceptr start = AT + number * 64;
  MUST (cuMemCreate (&handle, 64, &prop, 0));
  MUST (cuMemMap (start, 64, 0, handle, 0));
  if (keep)
    return;
  MUST (cuMemUnmap (start, 64));
  MUST (cuMemRelease (handle));
}

int
main (int argc, char **argv)
{
  size_t live = argc > 1 ? strtoull (argv[1], NULL, 10) : 0;
  int cycles = argc > 2 ? atoi (argv[2]) : 0;
  use_gpu (0);
  for (size_t number = 0; number < live; number++)
    make (2 * number, 1);
  for (int cycle = 0; cycle < cycles; cycle++)
    make (live | 1, 0); /* in the middle of those */
  return 0;
}
