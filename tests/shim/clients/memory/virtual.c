/* virtual: on the mock driver, a slice of 10 MB and blocks of 4 MB. Prints what is free after each
   step, or the error.  */

#include "common/gpu.h"

#define BLOCK ((size_t) 4000000)
#define AT ((CUdeviceptr) 0x100000000)

static void
say_free (const char *step)
{
  size_t free_now, total;
  MUST (cuMemGetInfo (&free_now, &total));
  printf ("%s\"%s\": %zu", step[0] == '1' ? "{" : ", ", step, free_now);
}

int
main (void)
{
  CUmemGenericAllocationHandle handle[3];
  CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
  use_gpu (0);
  MUST (cuMemCreate (&handle[0], BLOCK, &prop, 0));
  MUST (cuMemCreate (&handle[1], BLOCK, &prop, 0));
  say_free ("1 two blocks");
  CUresult third = cuMemCreate (&handle[2], BLOCK, &prop, 0);
  MUST (cuMemMap (AT, BLOCK, 0, handle[0], 0));
  MUST (cuMemMap (AT + BLOCK, BLOCK, 0, handle[1], 0));
  MUST (cuMemRelease (handle[0]));
  say_free ("2 released but mapped");
  MUST (cuMemUnmap (AT, 2 * BLOCK));
  say_free ("3 unmapped, one handle left");
  MUST (cuMemRelease (handle[1]));
  say_free ("4 all gone");
  printf (", \"third\": %d}\n", (int) third);
  return 0;
}
