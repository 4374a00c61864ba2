/* mapped LIMIT: one block of two fifths of LIMIT, mapped, released, retained, unmapped. Prints what
   is free after each step.  */

#include "common/gpu.h"

static const char *before = "{";

static void
say_free (const char *step)
{
  size_t left, total;
  MUST (cuMemGetInfo (&left, &total));
  printf ("%s\"%s\": %zu", before, step, left);
  before = ", ";
}

int
main (int argc, char **argv)
{
  if (argc != 2)
    return 2;
  size_t bytes = strtoull (argv[1], NULL, 10) / 1024 * 400;
  CUdeviceptr address;
  CUmemGenericAllocationHandle handle, again;
  CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
  use_gpu (0);
  MUST (cuMemCreate (&handle, bytes, &prop, 0));
  say_free ("created");
  MUST (cuMemAddressReserve (&address, bytes, 0, 0, 0));
  MUST (cuMemMap (address, bytes, 0, handle, 0));
  MUST (cuMemRelease (handle));
  say_free ("mapped and released");
  MUST (cuMemRetainAllocationHandle (&again, (void *) address));
  say_free ("retained");
  MUST (cuMemUnmap (address, bytes));
  say_free ("unmapped");
  MUST (cuMemRelease (again));
  say_free ("released");
  printf ("}\n");
  return 0;
}
